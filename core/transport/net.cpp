// SPDX-License-Identifier: Apache-2.0
#include "transport/net.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/net_tasks.h"

namespace tutti::transport {

Result<std::unique_ptr<Net>> Net::create(Options options) {
  std::unique_ptr<Net> net(new Net(std::move(options)));
  const tutti_network_ops& ops = *net->options_.ops;
  if (int32_t code = ops.create(net->options_.plugin, net->options_.communicator, &net->context_); code != TUTTI_OK) {
    return net->failure("open a context", net->options_.rank, code);
  }
  TUTTI_TRY(net->choose_devices());
  TUTTI_TRY(net->listen());
  const bool has_events = (net->options_.capabilities & TUTTI_NET_CAP_EVENT_FD) != 0;
  TUTTI_ASSIGN(net->engine_, progress::Engine::create({&ops, net->context_, has_events, net->options_.on_failure}));
  net->acceptor_ = std::make_shared<AcceptTask>(*net);
  return net;
}

Status Net::choose_devices() {
  uint32_t count = 0;
  if (int32_t code = options_.ops->device_count(context_, &count); code != TUTTI_OK) {
    return failure("list its devices", options_.rank, code);
  }
  uint64_t stride = sizeof(NetHello);
  for (const auto& layout : options_.keys.protocols) stride = std::max(stride, layout.slot_stride);
  for (uint32_t index = 0; index < count; ++index) {
    Device device{index};
    device.properties.struct_size = sizeof device.properties;
    if (int32_t code = options_.ops->properties(context_, index, &device.properties); code != TUTTI_OK) {
      return failure("describe a device", options_.rank, code);
    }
    const bool usable =
        (device.properties.memory & TUTTI_MEMORY_HOST) != 0 && device.properties.max_message_bytes >= stride;
    if (usable) devices_.push_back(device);
  }
  if (devices_.empty()) {
    return Status(Code::kNotFound,
                  fmt::format("network '{}' has no usable device among {} (host memory, messages of {} bytes); "
                              "check its interface settings",
                              options_.name, count, stride));
  }
  std::stable_sort(devices_.begin(), devices_.end(),
                   [](const Device& a, const Device& b) { return a.properties.speed_gbs > b.properties.speed_gbs; });
  // A device of unknown or much lower speed is no second rail.
  const double fastest = devices_.front().properties.speed_gbs;
  const auto slow = std::find_if(devices_.begin() + 1, devices_.end(), [&](const Device& device) {
    return fastest <= 0 || device.properties.speed_gbs < fastest / 2;
  });
  devices_.erase(slow, devices_.end());
  return {};
}

Status Net::listen() {
  for (Device& device : devices_) {
    Door door{device.index, {}};
    if (int32_t code = options_.ops->listen(context_, device.index, &door.handle, &device.listener); code != TUTTI_OK) {
      return failure("listen", options_.rank, code);
    }
    doors_.push_back(door);
  }
  return {};
}

uint32_t Net::own_device(uint32_t wanted) const {
  for (const Device& device : devices_) {
    if (device.index == wanted) return wanted;
  }
  return devices_.front().index;
}

const tutti_net_handle& Net::door_of(uint32_t peer, uint32_t wanted) const {
  for (const Door& door : peers_[peer]) {
    if (door.device == wanted) return door.handle;
  }
  return peers_[peer].front().handle;
}

Net::~Net() {
  if (engine_ != nullptr) engine_.reset();
  senders_.clear();
  receivers_.clear();
  acceptor_.reset();
  for (const Device& device : devices_) {
    if (device.listener != nullptr) options_.ops->close_listener(device.listener);
  }
  if (context_ != nullptr) options_.ops->destroy(context_);
}

tutti_connection* Net::sender(const Key& key) {
  if (senders_.empty()) senders_.resize(peers_.size() * options_.keys.size());
  auto& task = senders_[key.peer * options_.keys.size() + options_.keys.index(key)];
  if (task == nullptr) {
    task = std::make_shared<SendTask>(*this, key, own_device(key.device), door_of(key.peer, key.peer_device),
                                      &engine_->bell());
    engine_->add(task);
  }
  return &task->connection();
}

tutti_connection* Net::receiver(const Key& key) {
  if (receivers_.empty()) {
    receivers_.resize(peers_.size() * options_.keys.size());
    engine_->add(acceptor_);
  }
  auto& task = receivers_[key.peer * options_.keys.size() + options_.keys.index(key)];
  if (task == nullptr) {
    task = std::make_shared<ReceiveTask>(*this, key, &engine_->bell());
    acceptor_->expect(key, task);
    engine_->add(task);
  }
  return &task->connection();
}

Status Net::failure(std::string_view doing, uint32_t peer, int32_t code) const {
  const std::string whom = peer == options_.rank ? std::string() : fmt::format(" (rank {})", peer);
  const std::string why = options_.last_failure();
  return Status(static_cast<Code>(code), fmt::format("network '{}' could not {}{}: {}", options_.name, doing, whom,
                                                     why.empty() ? "it does not say why (PLG-14)" : why));
}

}  // namespace tutti::transport
