// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_network.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

namespace tutti::test {
namespace {

thread_local std::string failure_text;
// The request of a send or a flush: done at once.
int sent_request;
// The registration of memory of a GPU.
int device_memory;

}  // namespace

struct FakeNetwork::Calls {
  static FakeNetwork& network(void* context) { return *static_cast<FakeNetwork*>(context); }

  static int32_t create(void* self, uint64_t /*communicator*/, void** context) {
    *context = self;
    return TUTTI_OK;
  }
  static int32_t device_count(void* context, uint32_t* count) {
    *count = network(context).devices_;
    return TUTTI_OK;
  }
  static int32_t properties(void* context, uint32_t device, tutti_net_properties* out) {
    static constexpr std::array<std::string_view, 3> kNames = {"fake0", "fake1", "fake2"};
    out->name = {kNames.at(device).data(), kNames.at(device).size()};
    if (network(context).devices_ > 1) out->speed_gbs = 1;
    out->memory = network(context).memory_;
    out->max_grouped_recvs = 2;
    out->max_connections = network(context).max_connections_;
    out->max_message_bytes = 1 << 20;
    return TUTTI_OK;
  }
  static int32_t listen(void* context, uint32_t device, tutti_net_handle* handle, void** listener) {
    FakeNetwork& network = Calls::network(context);
    const std::lock_guard lock(network.mutex_);
    const uint64_t index = network.listeners_.size();
    std::memcpy(handle->bytes, &index, sizeof index);
    network.listeners_.push_back(new Listener{&network, device});
    *listener = network.listeners_.back();
    return TUTTI_OK;
  }
  static int32_t connect(void* context, uint32_t device, const tutti_net_handle* handle, void** /*state*/,
                         void** connection) {
    FakeNetwork& network = Calls::network(context);
    uint64_t index = 0;
    std::memcpy(&index, handle->bytes, sizeof index);
    if (network.delays_) return TUTTI_AGAIN;
    const std::lock_guard lock(network.mutex_);
    if (network.refuses_) return network.fail(TUTTI_REMOTE);
    auto pipe = std::make_shared<Pipe>();
    if (network.cuts_next_.exchange(false)) pipe->cut(INT_MAX, Clock::now());
    network.pipes_.push_back(pipe);
    network.listeners_[index]->waiting.push_back(pipe);
    ++network.connections_[{device, network.listeners_[index]->device}];
    *connection = new Connection{&network, std::move(pipe), true};
    return TUTTI_OK;
  }
  static int32_t accept(void* raw, void** /*state*/, void** connection) {
    auto& listener = *static_cast<Listener*>(raw);
    ++listener.network->accepts_;
    const std::lock_guard lock(listener.network->mutex_);
    if (listener.waiting.empty()) return TUTTI_AGAIN;
    *connection = new Connection{listener.network, std::move(listener.waiting.front()), false};
    listener.waiting.pop_front();
    ++listener.network->open_receivers_;
    return TUTTI_OK;
  }
  static int32_t register_memory(void* /*connection*/, void* /*address*/, uint64_t /*bytes*/, uint32_t memory,
                                 void** registration) {
    *registration = memory == TUTTI_MEMORY_CUDA ? &device_memory : nullptr;
    return TUTTI_OK;
  }
  /// The descriptor must export the memory that the address names.
  static int32_t register_dmabuf(void* raw, void* address, uint64_t bytes, uint64_t offset, int32_t fd,
                                 void** registration) {
    FakeNetwork& network = *static_cast<Connection*>(raw)->network;
    const std::lock_guard lock(network.mutex_);
    const PrivateMemory* const memory = network.memory_at(address);
    if (memory == nullptr || !memory->is_exported_by(fd)) return TUTTI_INVALID_ARGUMENT;
    const auto place = static_cast<uint64_t>(static_cast<uint8_t*>(address) - memory->view());
    if (offset != place || offset + bytes > memory->bytes()) return TUTTI_INVALID_ARGUMENT;
    *registration = &device_memory;
    return TUTTI_OK;
  }
  static int32_t send(void* raw, const void* address, uint64_t bytes, uint32_t tag, void* registration,
                      void** request) {
    auto& connection = *static_cast<Connection*>(raw);
    FakeNetwork& network = *connection.network;
    const std::lock_guard lock(network.mutex_);
    Pipe& pipe = *connection.pipe;
    if (const int32_t code = pipe.sender_code(); code != TUTTI_OK) return network.fail(code);
    *request = nullptr;
    if (tag >= network.refused_.first && tag <= network.refused_.second) return TUTTI_OK;
    const uint8_t* const from = network.reach(address, bytes, registration == &device_memory);
    if (from == nullptr) return TUTTI_INVALID_ARGUMENT;
    std::vector<uint8_t> message(from, from + bytes);
    if (network.change_) network.change_(message);
    if (pipe.is_cut) {
      --pipe.vanishing;
    } else {
      pipe.messages.push_back({tag, std::move(message)});
    }
    ++network.sent_[tag];
    *request = &sent_request;
    if (network.held_tag_ == int64_t{tag}) {
      Request& held = connection.held_sends[tag];
      held = {&connection, {{nullptr, 0, tag, false}}, true};
      *request = &held;
    }
    return TUTTI_OK;
  }
  static int32_t recv(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                      void* const* registrations, void** request) {
    auto& connection = *static_cast<Connection*>(raw);
    FakeNetwork& network = *connection.network;
    const std::lock_guard lock(network.mutex_);
    if (network.recv_code_ != TUTTI_OK) {
      ++network.failed_receives_;
      return network.fail(network.recv_code_);
    }
    auto made = std::make_unique<Request>(Request{&connection, {}, false});
    for (uint32_t i = 0; i < count; ++i) {
      const bool on_device = registrations[i] == &device_memory;
      uint8_t* const to = network.reach(addresses[i], bytes[i], on_device);
      if (to == nullptr) return TUTTI_INVALID_ARGUMENT;
      made->parts.push_back({to, bytes[i], tags[i], on_device});
      ++network.posted_[tags[i]];
    }
    *request = made.get();
    connection.receives.push_back(std::move(made));
    return TUTTI_OK;
  }
  static int32_t flush(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes,
                       void* const* registrations, void** request) {
    FakeNetwork& network = *static_cast<Connection*>(raw)->network;
    const std::lock_guard lock(network.mutex_);
    for (uint32_t i = 0; i < count; ++i) {
      uint8_t* const to = network.reach(addresses[i], bytes[i], registrations[i] == &device_memory);
      const auto held = network.unflushed_.find(to);
      if (held == network.unflushed_.end() || held->second.size() != bytes[i]) return TUTTI_INVALID_ARGUMENT;
      std::copy(held->second.begin(), held->second.end(), to);
      network.unflushed_.erase(held);
      ++network.flushes_;
    }
    *request = &sent_request;
    return TUTTI_OK;
  }
  static int32_t test(void* raw, int32_t* done, uint64_t* bytes) {
    *done = 1;
    if (raw == &sent_request) return TUTTI_OK;
    *done = 0;
    auto& request = *static_cast<Request*>(raw);
    Connection& connection = *request.connection;
    FakeNetwork& network = *connection.network;
    const std::lock_guard lock(network.mutex_);
    Pipe& pipe = *connection.pipe;
    if (request.is_send) {
      *done = network.held_tag_ == int64_t{request.parts[0].tag} ? 0 : 1;
      if (*done == 0) ++network.held_[request.parts[0].tag];
      return *done == 0 ? TUTTI_AGAIN : TUTTI_OK;
    }
    if (request.has_failed) {
      network.why_ = "a request that has failed is tested again";
      return network.fail(TUTTI_INTERNAL);
    }
    if (!is_oldest(connection, request)) return TUTTI_AGAIN;
    if (!has_all(pipe, request)) {
      const int32_t code = pipe.receiver_code();
      if (code == TUTTI_OK) return TUTTI_AGAIN;
      connection.give_up(request);
      return network.fail(code);
    }
    for (size_t i = 0; i < request.parts.size(); ++i) {
      const Part& part = request.parts[i];
      const auto found = std::find_if(pipe.messages.begin(), pipe.messages.end(),
                                      [&](const Message& message) { return message.tag == part.tag; });
      std::vector<uint8_t> data = std::move(found->data);
      pipe.messages.erase(found);
      data.resize(std::min<uint64_t>(data.size(), part.bytes));
      if (bytes != nullptr) {
        bytes[i] = static_cast<uint64_t>(static_cast<int64_t>(data.size()) + network.extra_bytes_);
      }
      if (part.on_device && (network.capabilities_ & TUTTI_NET_CAP_FLUSH) != 0) {
        network.unflushed_[part.address] = std::move(data);
      } else {
        std::copy(data.begin(), data.end(), part.address);
      }
    }
    *done = 1;
    std::erase_if(connection.receives, [&](const auto& receive) { return receive.get() == &request; });
    return TUTTI_OK;
  }
  static void close_connection(void* raw) {
    const std::unique_ptr<Connection> connection(static_cast<Connection*>(raw));
    if (!connection->sends) --connection->network->open_receivers_;
    const std::lock_guard lock(connection->network->mutex_);
    Pipe& pipe = *connection->pipe;
    if (!pipe.is_cut && pipe.code == TUTTI_OK) pipe.code = TUTTI_REMOTE;  // no end of a cut connection hears of it
  }
  static void close_listener(void* raw) {
    const std::unique_ptr<Listener> listener(static_cast<Listener*>(raw));
    const std::lock_guard lock(listener->network->mutex_);
    std::replace(listener->network->listeners_.begin(), listener->network->listeners_.end(), listener.get(),
                 static_cast<Listener*>(nullptr));
  }
};

void FakeNetwork::Connection::give_up(Request& request) {
  request.has_failed = true;
  const auto at =
      std::find_if(receives.begin(), receives.end(), [&](const auto& one) { return one.get() == &request; });
  failed.push_back(std::move(*at));
  receives.erase(at);
}

const tutti_network_ops* FakeNetwork::ops() {
  static const tutti_network_ops table = {
      sizeof(tutti_network_ops),
      0,
      Calls::create,
      [](void* /*context*/) {},
      Calls::device_count,
      Calls::properties,
      Calls::listen,
      Calls::connect,
      Calls::accept,
      [](void* /*state*/) {},
      Calls::register_memory,
      Calls::register_dmabuf,
      [](void* /*connection*/, void* /*registration*/) -> int32_t { return TUTTI_OK; },
      Calls::send,
      Calls::recv,
      Calls::flush,
      Calls::test,
      Calls::close_connection,
      Calls::close_listener,
      nullptr,
      nullptr,
  };
  return &table;
}

void FakeNetwork::break_all(int32_t code, std::string why) {
  const std::lock_guard lock(mutex_);
  why_ = std::move(why);
  for (const auto& one : pipes_) {
    if (const auto pipe = one.lock()) pipe->code = code;
  }
}

void FakeNetwork::cut_some(double probability, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto soon = [&] { return Clock::now() + std::chrono::microseconds(random() % 40'000); };
  const std::lock_guard lock(mutex_);
  why_ = "the link is cut";
  for (const auto& one : pipes_) {
    const auto pipe = one.lock();
    if (pipe == nullptr || pipe->is_cut || !std::bernoulli_distribution(probability)(random)) continue;
    pipe->cut(random() % 2 == 0 ? 1 : INT_MAX, soon());
    if (random() % 2 == 0) pipe->messages.clear();
    if (random() % 3 == 0) pipe->sender_fails_at = soon();
  }
}

void FakeNetwork::cut(size_t index) {
  const std::lock_guard lock(mutex_);
  why_ = "the link is cut";
  if (const auto pipe = pipes_[index].lock()) pipe->cut(INT_MAX, Clock::now());
}

void FakeNetwork::Pipe::cut(int messages_vanish, Clock::time_point receiver_fails) {
  is_cut = true;
  vanishing = messages_vanish;
  receiver_fails_at = receiver_fails;
}

int32_t FakeNetwork::Pipe::receiver_code() const {
  return code == TUTTI_OK && Clock::now() >= receiver_fails_at ? TUTTI_REMOTE : code;
}

int32_t FakeNetwork::Pipe::sender_code() const {
  const bool fails = Clock::now() >= sender_fails_at || (is_cut && vanishing <= 0);
  return code == TUTTI_OK && fails ? TUTTI_REMOTE : code;
}

void FakeNetwork::change_messages(std::function<void(std::vector<uint8_t>&)> change) {
  const std::lock_guard lock(mutex_);
  change_ = std::move(change);
}

void FakeNetwork::fail_receives(int32_t code, std::string why) {
  const std::lock_guard lock(mutex_);
  recv_code_ = code;
  why_ = std::move(why);
}

void FakeNetwork::visit(size_t index, const std::vector<uint8_t>& message) {
  const std::lock_guard lock(mutex_);
  auto pipe = std::make_shared<Pipe>();
  if (!message.empty()) pipe->messages.push_back({0, message});
  listeners_[index]->waiting.push_back(std::move(pipe));
}

int FakeNetwork::connections(uint32_t from, uint32_t to) {
  const std::lock_guard lock(mutex_);
  return connections_[{from, to}];
}

void FakeNetwork::grant(const PrivateMemory& memory) {
  const std::lock_guard lock(mutex_);
  granted_.push_back(&memory);
}

int FakeNetwork::count(const std::map<uint32_t, int>& by_tag, uint32_t first, uint32_t last) {
  const std::lock_guard lock(mutex_);
  int sum = 0;
  for (const auto& [tag, count] : by_tag) sum += tag >= first && tag <= last ? count : 0;
  return sum;
}

const PrivateMemory* FakeNetwork::memory_at(const void* address) {
  const auto found = std::find_if(granted_.begin(), granted_.end(),
                                  [&](const PrivateMemory* memory) { return memory->holds(address); });
  return found == granted_.end() ? nullptr : *found;
}

uint8_t* FakeNetwork::reach(const void* address, uint64_t bytes, bool on_device) {
  auto* const at = static_cast<uint8_t*>(const_cast<void*>(address));
  const PrivateMemory* const memory = memory_at(address);
  if (memory == nullptr) return on_device ? nullptr : at;
  const auto offset = static_cast<uint64_t>(at - memory->view());
  return on_device && offset + bytes <= memory->bytes() ? memory->alias() + offset : nullptr;
}

bool FakeNetwork::has_all(const Pipe& pipe, const Request& request) {
  return std::all_of(request.parts.begin(), request.parts.end(), [&](const Part& part) {
    return std::any_of(pipe.messages.begin(), pipe.messages.end(),
                       [&](const Message& message) { return message.tag == part.tag; });
  });
}

/// Messages of one tag go to receives in the order posted.
bool FakeNetwork::is_oldest(const Connection& connection, const Request& request) {
  for (const auto& receive : connection.receives) {
    if (receive.get() == &request) return true;
    for (const Part& other : receive->parts) {
      for (const Part& own : request.parts) {
        if (other.tag == own.tag) return false;
      }
    }
  }
  return false;
}

int32_t FakeNetwork::fail(int32_t code) {
  failure_text = why_;
  return code;
}

std::string FakeNetwork::take_failure() {
  return std::exchange(failure_text, {});
}

}  // namespace tutti::test
