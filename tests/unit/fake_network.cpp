// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::test {
namespace {

thread_local std::string failure_text;
// What a send hands out: done at once.
int sent;

}  // namespace

struct FakeNetwork::Calls {
  static FakeNetwork& network(void* context) { return *static_cast<FakeNetwork*>(context); }

  static int32_t create(void* self, uint64_t /*communicator*/, void** context) {
    *context = self;
    return TUTTI_OK;
  }
  static int32_t device_count(void* /*context*/, uint32_t* count) {
    *count = 1;
    return TUTTI_OK;
  }
  static int32_t properties(void* /*context*/, uint32_t /*device*/, tutti_net_properties* out) {
    static constexpr char kName[] = "fake0";
    out->name = {kName, sizeof kName - 1};
    out->memory = TUTTI_MEMORY_HOST;
    out->max_grouped_recvs = 1;
    out->max_message_bytes = 1 << 20;
    return TUTTI_OK;
  }
  static int32_t listen(void* context, uint32_t /*device*/, tutti_net_handle* handle, void** listener) {
    FakeNetwork& network = Calls::network(context);
    const std::lock_guard lock(network.mutex_);
    const uint64_t index = network.listeners_.size();
    std::memcpy(handle->bytes, &index, sizeof index);
    network.listeners_.push_back(new Listener{&network, {}});
    *listener = network.listeners_.back();
    return TUTTI_OK;
  }
  static int32_t connect(void* context, uint32_t /*device*/, const tutti_net_handle* handle, void** /*state*/,
                         void** connection) {
    FakeNetwork& network = Calls::network(context);
    uint64_t index = 0;
    std::memcpy(&index, handle->bytes, sizeof index);
    const std::lock_guard lock(network.mutex_);
    auto pipe = std::make_shared<Pipe>();
    network.pipes_.push_back(pipe);
    network.listeners_[index]->waiting.push_back(pipe);
    *connection = new Connection{&network, std::move(pipe), true, {}};
    return TUTTI_OK;
  }
  static int32_t accept(void* raw, void** /*state*/, void** connection) {
    auto& listener = *static_cast<Listener*>(raw);
    const std::lock_guard lock(listener.network->mutex_);
    if (listener.waiting.empty()) return TUTTI_AGAIN;
    *connection = new Connection{listener.network, std::move(listener.waiting.front()), false, {}};
    listener.waiting.pop_front();
    ++listener.network->open_receivers_;
    return TUTTI_OK;
  }
  static int32_t register_memory(void* /*connection*/, void* /*address*/, uint64_t /*bytes*/, uint32_t /*memory*/,
                                 void** registration) {
    *registration = nullptr;
    return TUTTI_OK;
  }
  static int32_t send(void* raw, const void* address, uint64_t bytes, uint32_t /*tag*/, void* /*registration*/,
                      void** request) {
    auto& connection = *static_cast<Connection*>(raw);
    const std::lock_guard lock(connection.network->mutex_);
    if (connection.pipe->code != TUTTI_OK) return connection.network->fail(connection.pipe->code);
    std::vector<uint8_t> message(bytes);
    if (bytes > 0) std::memcpy(message.data(), address, bytes);
    if (connection.network->change_) connection.network->change_(message);
    connection.pipe->messages.push_back(std::move(message));
    *request = &sent;
    return TUTTI_OK;
  }
  static int32_t recv(void* raw, uint32_t /*count*/, void* const* addresses, const uint64_t* bytes,
                      const uint32_t* /*tags*/, void* const* /*registrations*/, void** request) {
    auto& connection = *static_cast<Connection*>(raw);
    const std::lock_guard lock(connection.network->mutex_);
    connection.receives.push_back(
        std::make_unique<Request>(Request{&connection, static_cast<uint8_t*>(addresses[0]), bytes[0]}));
    *request = connection.receives.back().get();
    return TUTTI_OK;
  }
  static int32_t test(void* raw, int32_t* done, uint64_t* bytes) {
    *done = 1;
    if (raw == &sent) return TUTTI_OK;
    *done = 0;
    auto& request = *static_cast<Request*>(raw);
    Connection& connection = *request.connection;
    const std::lock_guard lock(connection.network->mutex_);
    Pipe& pipe = *connection.pipe;
    if (connection.receives.front().get() != &request) return TUTTI_AGAIN;
    if (pipe.messages.empty()) return pipe.code == TUTTI_OK ? TUTTI_AGAIN : connection.network->fail(pipe.code);
    const std::vector<uint8_t> message = std::move(pipe.messages.front());
    pipe.messages.pop_front();
    const uint64_t length = std::min<uint64_t>(message.size(), request.bytes);
    if (length > 0) std::memcpy(request.address, message.data(), length);
    if (bytes != nullptr)
      *bytes = static_cast<uint64_t>(static_cast<int64_t>(length) + connection.network->extra_bytes_);
    *done = 1;
    connection.receives.pop_front();
    return TUTTI_OK;
  }
  static void close_connection(void* raw) {
    const std::unique_ptr<Connection> connection(static_cast<Connection*>(raw));
    if (!connection->sends) --connection->network->open_receivers_;
    const std::lock_guard lock(connection->network->mutex_);
    if (connection->pipe->code == TUTTI_OK) connection->pipe->code = TUTTI_REMOTE;
  }
  static void close_listener(void* raw) {
    const std::unique_ptr<Listener> listener(static_cast<Listener*>(raw));
    const std::lock_guard lock(listener->network->mutex_);
    std::replace(listener->network->listeners_.begin(), listener->network->listeners_.end(), listener.get(),
                 static_cast<Listener*>(nullptr));
  }
};

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
      nullptr,
      [](void* /*connection*/, void* /*registration*/) -> int32_t { return TUTTI_OK; },
      Calls::send,
      Calls::recv,
      nullptr,
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

void FakeNetwork::change_messages(std::function<void(std::vector<uint8_t>&)> change) {
  const std::lock_guard lock(mutex_);
  change_ = std::move(change);
}

void FakeNetwork::visit(size_t index, const std::vector<uint8_t>& message) {
  const std::lock_guard lock(mutex_);
  auto pipe = std::make_shared<Pipe>();
  if (!message.empty()) pipe->messages.push_back(message);
  listeners_[index]->waiting.push_back(std::move(pipe));
}

int32_t FakeNetwork::fail(int32_t code) {
  failure_text = why_;
  return code;
}

std::string FakeNetwork::take_failure() {
  return std::exchange(failure_text, {});
}

}  // namespace tutti::test
