// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "log/log.h"
#include "nccl_net/journal.h"
#include "plugin/search.h"

namespace tutti::nccl_net {
namespace {

constexpr plugin::Kind kKind = plugin::Kind::kNetwork;

std::mutex opening_mutex;                     // guards the opening of the network
std::atomic<Network*> open_network{nullptr};  // never destroyed: threads may use it while the process ends

std::string text_of(tutti_str text) {
  return text.data == nullptr ? std::string() : std::string(text.data, text.size);
}

/// Tutti's own log, as the configuration sets it. Without a file of its own, its lines go to NCCL's log.
Status start_log(const config::Config& config) {
  log::set_failure_level(log::Level::kInfo);  // the entries report each failure that they return
  TUTTI_TRY(log::configure(log::level_from(config.text("log.level")), config.text("log.file")));
  if (config.text("log.file").empty()) take_over_log();
  return {};
}

}  // namespace

Result<Network*> Network::of_process() {
  const std::lock_guard lock(opening_mutex);
  if (Network* const network = opened(); network != nullptr) return network;
  TUTTI_ASSIGN(Settings settings, read_settings());
  TUTTI_ASSIGN(std::unique_ptr<Network> network, start(settings));
  info(network->description());
  open_network.store(network.release(), std::memory_order_release);
  return opened();
}

Network* Network::opened() {
  return open_network.load(std::memory_order_acquire);
}

Result<std::unique_ptr<Network>> Network::start(Settings& settings) {
  TUTTI_TRY(start_log(settings.config));
  return open_first(settings);
}

/// Networks that do not work here are passed over, as in Tutti's own communicators.
Result<std::unique_ptr<Network>> Network::open_first(Settings& settings) {
  Status first_failure;
  for (const std::string& named : settings.networks) {
    auto network = open(named, settings);
    if (network.ok()) return network;
    if (first_failure.ok()) first_failure = network.status();
    log::info("network '{}' is passed over: {}", plugin::label_of(kKind, named), network.status().text());
  }
  if (!first_failure.ok()) return first_failure;
  return Status(Code::kConfig, "plugins.network is empty; name at least one plugin there, or one in TUTTI_NET");
}

Result<std::unique_ptr<Network>> Network::open(const std::string& named, Settings& settings) {
  config::Config& config = settings.config;
  const plugin::Reference reference = plugin::reference_of(kKind, named);
  TUTTI_ASSIGN(const std::filesystem::path file,
               plugin::find(kKind, named, plugin::search_path(config.list("plugins.path"))));
  TUTTI_ASSIGN(std::shared_ptr<plugin::Image> image,
               plugin::Image::load(kKind, reference.plugin, file, config.text("plugins.trust")));
  TUTTI_ASSIGN(std::shared_ptr<plugin::Plugin> plugin, plugin::Plugin::open(image, config, reference.file));
  std::unique_ptr<Network> network(new Network(std::move(plugin), plugin::label_of(kKind, named)));
  TUTTI_TRY(network->list_devices(settings.most_receives));
  return network;
}

/// Devices are the same in each context.
Status Network::list_devices(uint32_t most_receives) {
  void* context = nullptr;
  if (const int32_t code = ops().create(self(), 0, &context); code != TUTTI_OK) {
    return failure("cannot open a context", code);
  }
  uint32_t count = 0;
  const int32_t code = ops().device_count(context, &count);
  Status status = code == TUTTI_OK ? describe(context, count, most_receives) : failure("cannot list its devices", code);
  ops().destroy(context);
  if (!status.ok() || !devices_.empty()) return status;
  return {Code::kNotFound, fmt::format("network '{}' has no device for memory of the host among {}; check its settings "
                                       "of interfaces, or name another network in TUTTI_NET",
                                       name_, count)};
}

Status Network::describe(void* context, uint32_t count, uint32_t most_receives) {
  for (uint32_t index = 0; index < count; ++index) {
    Device device;
    device.index = index;
    device.properties.struct_size = sizeof device.properties;
    if (const int32_t code = ops().properties(context, index, &device.properties); code != TUTTI_OK) {
      return failure("cannot describe a device", code);
    }
    if ((device.properties.memory & TUTTI_MEMORY_HOST) == 0) continue;
    device.name = text_of(device.properties.name);
    device.pci_path = text_of(device.properties.pci_path);
    const uint32_t groups = has(TUTTI_NET_CAP_GROUPED_RECV) ? device.properties.max_grouped_recvs : 1;
    device.most_receives = std::clamp(groups, 1u, most_receives);
    devices_.push_back(std::move(device));
  }
  return {};
}

/// "network 'socket' 0.1.0 (/opt/tutti-net-socket.so), devices eth0, eth1".
std::string Network::description() const {
  std::string text =
      fmt::format("network '{}' {} ({}), devices", name_, plugin_->version(), plugin_->image().file().string());
  for (const Device& device : devices_) {
    text += fmt::format("{} {}", &device == &devices_.front() ? "" : ",", device.name);
  }
  return text;
}

Result<const Device*> Network::device(int index) const {
  if (index >= 0 && static_cast<size_t>(index) < devices_.size()) return &devices_[static_cast<size_t>(index)];
  return Status(Code::kInvalidArgument,
                fmt::format("network '{}' has no device {}; it has {}", name_, index, devices_.size()));
}

Status Network::failure(std::string_view doing, int32_t code) const {
  const Code kind = code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code);
  return {kind, fmt::format("network '{}' {}: {}", name_, doing, plugin::take_reason())};
}

}  // namespace tutti::nccl_net
