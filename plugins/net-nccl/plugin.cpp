// SPDX-License-Identifier: Apache-2.0
// Network "nccl": a network plugin of NCCL, loaded from its file without a change.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "library.h"
#include "nccl_plugins/log.h"
#include "tutti/sdk/network.h"

namespace tutti::net_nccl {
namespace {

/// The features that Tutti could use and the plugin lacks.
std::vector<std::string> missing_of(const Adapter& adapter, const std::vector<Device>& devices) {
  const auto all = [&](auto&& has) { return std::all_of(devices.begin(), devices.end(), has); };
  std::vector<std::string> missing;
  if (!all([](const Device& one) { return (one.memory & kNcclCuda) != 0; })) missing.emplace_back("memory of GPUs");
  if (!adapter.has_dmabuf() || !all([](const Device& one) { return (one.memory & kNcclDmabuf) != 0; })) {
    missing.emplace_back("dmabuf");
  }
  if (!all([](const Device& one) { return one.max_receives > 1; })) missing.emplace_back("receives of several buffers");
  if (!all([](const Device& one) { return one.rail >= 0; })) missing.emplace_back("rail numbers");
  if (!adapter.has_contexts()) missing.emplace_back("a context per communicator");
  missing.emplace_back("event descriptor");  // in every version
  return missing;
}

class NcclNetwork : public sdk::Network {
 public:
  /// Every device takes several buffers: for a plugin that does not, a receive becomes several.
  static constexpr uint64_t capabilities() {
    return TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_DEVICE_MEMORY | TUTTI_NET_CAP_DMABUF | TUTTI_NET_CAP_FLUSH;
  }
  static std::vector<tutti_config_key> settings() {
    return {sdk::setting(TUTTI_CONFIG_TEXT, "file", "",
                         "File of NCCL's network plugin: a path, or NAME for libnccl-net-NAME.so.")};
  }

  /// Without a file, only create() fails: a list of all plugins opens each plugin.
  Status open(const sdk::Host& host) override {
    sink_ = std::make_unique<Sink>(host);
    const std::string file = host.text("file");
    if (file.empty()) return {};
    const LogScope log(*sink_);  // a constructor of the file may log
    TUTTI_ASSIGN(library_, Library::load(file));
    return {};
  }

  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t communicator) override {
    if (library_ == nullptr) {
      return Status(Code::kConfig,
                    "settings.net.nccl.file is empty; set it to the path of an NCCL network plugin, or to NAME for "
                    "libnccl-net-NAME.so; or name the network nccl:FILE");
    }
    TUTTI_ASSIGN(std::unique_ptr<Context> context, Context::create(library_, *sink_, communicator));
    if (!has_told_.exchange(true)) tell(context->devices());
    return std::unique_ptr<sdk::NetworkContext>(std::move(context));
  }

 private:
  void tell(const std::vector<Device>& devices) const {
    std::vector<std::string> names;
    for (const Device& device : devices) names.push_back(device.name);
    host().log(TUTTI_LOG_INFO,
               fmt::format("NCCL network plugin {}: devices {}; without: {}", library_->place(), fmt::join(names, ", "),
                           fmt::join(missing_of(library_->adapter(), devices), ", ")));
  }

  std::unique_ptr<Sink> sink_;
  std::shared_ptr<Library> library_;
  std::atomic<bool> has_told_{false};
};

}  // namespace
}  // namespace tutti::net_nccl

TUTTI_PLUGIN(tutti::net_nccl::NcclNetwork, "nccl", "0.1.0", "a network plugin of NCCL, from its file")
