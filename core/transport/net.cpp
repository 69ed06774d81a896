// SPDX-License-Identifier: Apache-2.0
#include "transport/net.h"

#include <fmt/format.h>

#include "transport/net_tasks.h"

namespace tutti::transport {

Result<std::unique_ptr<Net>> Net::create(Options options) {
  std::unique_ptr<Net> net(new Net(std::move(options)));
  const tutti_network_ops& ops = *net->options_.ops;
  if (int32_t code = ops.create(net->options_.plugin, net->options_.communicator, &net->context_); code != TUTTI_OK) {
    return net->failure("open a context", net->options_.rank, code);
  }
  TUTTI_TRY(net->choose_device());
  if (int32_t code = ops.listen(net->context_, net->device_, &net->handle_, &net->listener_); code != TUTTI_OK) {
    return net->failure("listen", net->options_.rank, code);
  }
  const bool has_events = (net->options_.capabilities & TUTTI_NET_CAP_EVENT_FD) != 0;
  TUTTI_ASSIGN(net->engine_, progress::Engine::create({&ops, net->context_, has_events, net->options_.on_failure}));
  net->acceptor_ = std::make_shared<AcceptTask>(*net, net->listener_);
  return net;
}

/// The fastest device that can register host memory and carry a slot.
Status Net::choose_device() {
  uint32_t count = 0;
  if (int32_t code = options_.ops->device_count(context_, &count); code != TUTTI_OK) {
    return failure("list its devices", options_.rank, code);
  }
  uint64_t stride = sizeof(NetHello);
  for (const auto& layout : options_.keys.protocols) stride = std::max(stride, layout.slot_stride);
  bool found = false;
  for (uint32_t device = 0; device < count; ++device) {
    tutti_net_properties properties{};
    properties.struct_size = sizeof properties;
    if (int32_t code = options_.ops->properties(context_, device, &properties); code != TUTTI_OK) {
      return failure("describe a device", options_.rank, code);
    }
    if ((properties.memory & TUTTI_MEMORY_HOST) == 0 || properties.max_message_bytes < stride) continue;
    if (found && properties.speed_gbs <= bandwidth_gbs_) continue;
    found = true;
    device_ = device;
    bandwidth_gbs_ = properties.speed_gbs;
    latency_us_ = properties.latency_us;
  }
  if (found) return {};
  return Status(Code::kNotFound,
                fmt::format("network '{}' has no usable device among {} (host memory, messages of {} bytes); "
                            "check its interface settings",
                            options_.name, count, stride));
}

Net::~Net() {
  if (engine_ != nullptr) engine_.reset();
  senders_.clear();
  receivers_.clear();
  acceptor_.reset();
  if (listener_ != nullptr) options_.ops->close_listener(listener_);
  if (context_ != nullptr) options_.ops->destroy(context_);
}

tutti_connection* Net::sender(const Key& key) {
  if (senders_.empty()) senders_.resize(peers_.size() * options_.keys.size());
  auto& task = senders_[key.peer * options_.keys.size() + options_.keys.index(key)];
  if (task == nullptr) {
    task = std::make_shared<SendTask>(*this, key, device_, peers_[key.peer], &engine_->bell());
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
  return Status(static_cast<Code>(code),
                fmt::format("network '{}' could not {}{}: {}", options_.name, doing, whom, options_.last_failure()));
}

}  // namespace tutti::transport
