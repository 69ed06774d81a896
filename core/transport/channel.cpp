// SPDX-License-Identifier: Apache-2.0
#include "transport/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::transport {
namespace {

constexpr size_t kMostParts = 2;  // parts of a grouped receive

}  // namespace

Channel::Channel(const Net& net, void* connection, std::string ends)
    : net_(net), connection_(connection), ends_(std::move(ends)), mark_(net.watch(), "on the connection " + ends_) {}

Channel::~Channel() {
  const tutti_network_ops& ops = *net_.options().ops;
  for (void* registration : registrations_) {
    mark_.call("deregister_memory", [&] { return ops.deregister_memory(connection_, registration); });
  }
  const auto lock = net_.lock_setup();
  mark_.call("close_connection", [&] { ops.close_connection(connection_); });
}

void Channel::set_ends(std::string ends) {
  ends_ = std::move(ends);
  mark_.set_place("on the connection " + ends_);
}

Result<void*> Channel::register_memory(const MessageMemory& memory) {
  const tutti_network_ops& ops = *net_.options().ops;
  void* registration = nullptr;
  const int32_t code = mark_.call(memory.dmabuf.valid() ? "register_dmabuf" : "register_memory", [&] {
    if (!memory.dmabuf.valid()) {
      return ops.register_memory(connection_, memory.address, memory.bytes, memory.kind, &registration);
    }
    return ops.register_dmabuf(connection_, memory.address, memory.bytes, memory.dmabuf_offset, memory.dmabuf.get(),
                               &registration);
  });
  if (code != TUTTI_OK) {
    TUTTI_TRY(net_.violation("on the connection " + ends_));
    const std::string_view kind = memory.dmabuf.valid()              ? "GPU memory as a dmabuf"
                                  : memory.kind == TUTTI_MEMORY_CUDA ? "GPU memory"
                                                                     : "memory";
    return net_.failure(fmt::format("cannot register {} bytes of {} for the connection {}", memory.bytes, kind, ends_),
                        code);
  }
  if (registration != nullptr) registrations_.push_back(registration);
  return registration;
}

void Channel::deregister_memory(void* registration) {
  if (std::erase(registrations_, registration) == 0) return;
  mark_.call("deregister_memory", [&] { return net_.options().ops->deregister_memory(connection_, registration); });
}

Result<void*> Channel::send(const MessagePart& part) {
  void* request = nullptr;
  const int32_t code = mark_.call("send", [&] {
    return net_.options().ops->send(connection_, part.address, part.bytes, part.tag, part.registration, &request);
  });
  if (code != TUTTI_OK && code != TUTTI_AGAIN) return failure(code);
  return request;
}

Result<void*> Channel::recv(std::span<const MessagePart> parts) {
  std::array<void*, kMostParts> addresses{};
  std::array<uint64_t, kMostParts> bytes{};
  std::array<uint32_t, kMostParts> tags{};
  std::array<void*, kMostParts> registrations{};
  for (size_t i = 0; i < parts.size(); ++i) {
    addresses[i] = parts[i].address;
    bytes[i] = parts[i].bytes;
    tags[i] = parts[i].tag;
    registrations[i] = parts[i].registration;
  }
  void* request = nullptr;
  const int32_t code = mark_.call("recv", [&] {
    return net_.options().ops->recv(connection_, static_cast<uint32_t>(parts.size()), addresses.data(), bytes.data(),
                                    tags.data(), registrations.data(), &request);
  });
  if (code != TUTTI_OK && code != TUTTI_AGAIN) return failure(code);
  return request;
}

Result<void*> Channel::flush(const MessagePart& part) {
  void* request = nullptr;
  void* const address = part.address;
  const int32_t code = mark_.call("flush", [&] {
    return net_.options().ops->flush(connection_, 1, &address, &part.bytes, &part.registration, &request);
  });
  if (code != TUTTI_OK) return failure(code);
  return request;
}

Result<bool> Channel::test(void* request, uint64_t* bytes) {
  int32_t done = 0;
  const int32_t code = mark_.call("test", [&] { return net_.options().ops->test(request, &done, bytes); });
  if (code != TUTTI_OK && code != TUTTI_AGAIN) return failure(code);
  return done != 0;
}

Status Channel::mismatch(std::string_view difference) const {
  return {Code::kInternal, fmt::format("network '{}' delivers other messages than were sent on the connection {}: {}; "
                                       "its plugin or its device is faulty",
                                       net_.options().name, ends_, difference)};
}

Status Channel::failure(int32_t code) const {
  TUTTI_TRY(net_.violation("on the connection " + ends_));
  return net_.failure("lost the connection " + ends_, code);
}

Dial::Dial(const Net& net, const Key& key, uint32_t device, const tutti_net_handle& handle, const Introduction& as)
    : net_(net), key_(key), device_(device), handle_(handle), mark_(net.watch(), net.ends(key, true)) {
  hello_.communicator = net.options().communicator;
  hello_.rank = net.options().rank;
  hello_.traffic = static_cast<uint32_t>(key.traffic);
  hello_.channel = key.channel;
  hello_.protocol = key.protocol;
  hello_.purpose = static_cast<uint32_t>(as.purpose);
  hello_.home = as.home;
  hello_.generation = as.generation;
  hello_.device = device;
}

Dial::~Dial() {
  if (channel_ != nullptr) net_.uncount_connection(device_);
  if (channel_ != nullptr || state_ == nullptr) return;
  const auto lock = net_.lock_setup();
  mark_.call("cancel", [&] { net_.options().ops->cancel(state_); });
}

Result<bool> Dial::connect() {
  void* connection = nullptr;
  auto lock = net_.lock_setup();
  const int32_t code = mark_.call(
      "connect", [&] { return net_.options().ops->connect(net_.context(), device_, &handle_, &state_, &connection); });
  if (code == TUTTI_AGAIN || (code == TUTTI_OK && connection == nullptr)) return false;
  state_ = nullptr;
  const std::string ends = net_.ends(key_, true);
  if (code != TUTTI_OK) {
    TUTTI_TRY(net_.violation(ends));
    return net_.failure("cannot connect " + ends, code);
  }
  const Status counted = net_.count_connection(device_);
  lock.unlock();  // a channel that closes takes it
  channel_ = std::make_unique<Channel>(net_, connection, ends);
  TUTTI_TRY(counted);
  TUTTI_ASSIGN(registration_, channel_->register_memory({&hello_, sizeof hello_}));
  return true;
}

Result<std::unique_ptr<Channel>> Dial::advance() {
  if (channel_ == nullptr) {
    TUTTI_ASSIGN(const bool connected, connect());
    if (!connected) return std::unique_ptr<Channel>();
  }
  if (request_ == nullptr) {
    TUTTI_ASSIGN(request_, channel_->send({&hello_, sizeof hello_, 0, registration_}));
    if (request_ == nullptr) return std::unique_ptr<Channel>();
  }
  TUTTI_ASSIGN(const bool told, channel_->test(request_, nullptr));
  if (!told) return std::unique_ptr<Channel>();
  channel_->deregister_memory(registration_);
  return std::move(channel_);
}

void Breakage::begin(Status failure) {
  failure_ = std::move(failure);
}

bool Breakage::is_harmless(const Net::Standing& peer, bool undelivered) {
  return !peer.awaited && (peer.left || (peer.unheard && !undelivered));
}

Status Breakage::verdict(const Net& net, uint32_t peer, bool undelivered, std::chrono::nanoseconds grace) {
  const Net::Standing standing = net.standing(peer);
  const bool is_excused = is_excused_ && (!standing.awaited || standing.left || !standing.unheard);
  if (is_excused || is_harmless(standing, undelivered)) {
    harmful_since_.reset();
    return {};
  }
  const auto now = std::chrono::steady_clock::now();
  if (!harmful_since_) harmful_since_ = now;
  if (now - *harmful_since_ <= grace) return {};
  if (is_excused_ && net.options().incoming->has(peer)) {
    harmful_since_.reset();
    return {};
  }
  return failure_;
}

}  // namespace tutti::transport
