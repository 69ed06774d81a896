// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <utility>

#include "nccl_plugins/file.h"

namespace tutti::net_nccl {
namespace {

using nccl_plugins::code_of;
using nccl_plugins::log_line;
using nccl_plugins::name_of;
using nccl_plugins::open_file;
using nccl_plugins::PluginFile;
using nccl_plugins::PluginKind;

constexpr PluginKind kNetworks = {.word = "network",
                                  .type = "net",
                                  .symbol = "ncclNetPlugin_v",
                                  .setting = "settings.net.nccl.file",
                                  .newest = kNewestVersion,
                                  .oldest = kOldestVersion,
                                  .since = "2.13"};

/// The loaded files of this process, by handle of the dynamic linker.
struct Loaded {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Library>> libraries;
};
Loaded& loaded() {
  static Loaded all;
  return all;
}

}  // namespace

Result<std::shared_ptr<Library>> Library::load(const std::string& named) {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  TUTTI_ASSIGN(const PluginFile file, open_file(kNetworks, named));
  if (const auto known = all.libraries.find(file.handle); known != all.libraries.end()) {
    dlclose(file.handle);  // opened a second time
    return known->second;
  }
  auto library = std::make_shared<Library>(file.path, make_adapter(file.version, file.table));
  all.libraries.emplace(file.handle, library);
  return library;
}

std::string Library::place() const {
  return fmt::format("'{}' ({}, {}{})", adapter_->name(), file_, kNetworks.symbol, adapter_->version());
}

Status Library::begin(const Sink& sink, uint64_t communicator, void** context, std::vector<Device>& devices) {
  const LogScope log(sink);
  const std::lock_guard lock(mutex_);
  if (adapter_->has_contexts() || !is_initialised_) {
    if (const int code = adapter_->init(context, communicator, log_line); code != kNcclSuccess) {
      return failure("init", code);
    }
    is_initialised_ = true;
  }
  Status listed = list(devices);
  if (!listed.ok() && adapter_->has_contexts()) adapter_->finalize(std::exchange(*context, nullptr));
  return listed;
}

Status Library::list(std::vector<Device>& devices) {
  int count = 0;
  if (const int code = adapter_->devices(&count); code != kNcclSuccess) return failure("devices", code);
  if (count <= 0) {
    return {Code::kNotFound, fmt::format("NCCL network plugin {} finds no device on this machine; look at its log with "
                                         "log.level=debug, or choose a different network",
                                         place())};
  }
  for (int index = 0; index < count; ++index) {
    Device device;
    if (const int code = adapter_->describe(index, device); code != kNcclSuccess) {
      return failure(fmt::format("getProperties of device {}", index), code);
    }
    if (device.type != 0) {
      return {Code::kUnsupported,
              fmt::format("device {} ('{}') of NCCL network plugin {} must be driven by the GPU (netDeviceType {}), "
                          "which net-nccl does not do; configure the plugin for devices of the host",
                          index, device.name, place(), device.type)};
    }
    devices.push_back(std::move(device));
  }
  return {};
}

void Library::end(const Sink& sink, void* context) {
  if (!adapter_->has_contexts()) return;
  const LogScope log(sink);
  const std::lock_guard lock(mutex_);
  adapter_->finalize(context);
}

Status Library::failure(const std::string& doing, int nccl_code) const {
  const std::string warning = LogScope::last_warning();
  return {code_of(nccl_code), fmt::format("NCCL network plugin {}: {} fails with {}{}", place(), doing,
                                          name_of(nccl_code), warning.empty() ? "" : ": " + warning)};
}

Status Library::lost(const std::string& doing, int nccl_code) const {
  const Status status = failure(doing, nccl_code);
  const bool is_lost = nccl_code == kNcclSystemError || nccl_code == kNcclRemoteError || nccl_code == kNcclTimeout;
  return is_lost ? Status(Code::kRemote, std::string(status.text())) : status;
}

}  // namespace tutti::net_nccl
