// SPDX-License-Identifier: Apache-2.0
// The C++ face of a network plugin; the contract is in tutti/plugin/network.h.
//
//   Network ── create ──> NetworkContext ── listen ──> Listener ── accept ──> Connection ── send, recv ──> Request
//                                        ── connect ──> Connecting ── advance ──> Connection
//
// Every object is owned by the host, which destroys children first. A thunk is one virtual call: a Status that is ok is
// one null pointer, and nothing is allocated.
#pragma once

#include "tutti/plugin/network.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// Base of the objects that a network hands out. After the constructor, it knows its host.
class NetworkObject {
 public:
  virtual ~NetworkObject() = default;
  NetworkObject() = default;
  NetworkObject(const NetworkObject&) = delete;
  NetworkObject& operator=(const NetworkObject&) = delete;
  const Host& host() const { return host_; }

 private:
  friend class Network;
  Host host_;
};

class Connection;

/// Base of the requests that send, recv and flush hand out. The connection owns its memory: test() reports when it is
/// free again.
struct Request {
  Connection* connection = nullptr;  ///< set by the author before the request is handed out
};

/// One direction between two ranks. [progress]: one thread at a time, nothing blocks.
class Connection : public NetworkObject {
 public:
  /// `memory` is one TUTTI_MEMORY_* value. The default suits networks that copy from any memory of the host.
  virtual Result<void*> register_memory(void* /*address*/, uint64_t /*bytes*/, uint32_t memory) {
    if (memory != TUTTI_MEMORY_HOST) return Status(Code::kUnsupported, "only host memory can be registered");
    return static_cast<void*>(nullptr);
  }
  /// With TUTTI_NET_CAP_DMABUF.
  virtual Result<void*> register_dmabuf(void* /*address*/, uint64_t /*bytes*/, uint64_t /*offset*/, int /*fd*/) {
    return Status(Code::kUnsupported, "DMA buffers cannot be registered");
  }
  virtual Status deregister_memory(void* /*registration*/) { return {}; }

  /// Posts. `request` stays null where nothing could be posted now.
  virtual Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, Request*& request) = 0;
  virtual Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                      void* const* registrations, Request*& request) = 0;
  /// With TUTTI_NET_CAP_FLUSH. `request` stays null where there is nothing to wait for.
  virtual Status flush(uint32_t /*count*/, void* const* /*addresses*/, const uint64_t* /*bytes*/,
                       void* const* /*registrations*/, Request*& /*request*/) {
    return {};
  }
  /// Makes progress. When `done` is set, the request is gone, and `bytes` (if not null) holds the number of received
  /// bytes.
  virtual Status test(Request& request, bool& done, uint64_t* bytes) = 0;
};

/// A connect under way. Destroyed when it has completed, or was given up.
class Connecting : public NetworkObject {
 public:
  /// Null: not yet. Does not block.
  virtual Result<std::unique_ptr<Connection>> advance() = 0;
};

/// A listener. [setup]: one thread at a time.
class Listener : public NetworkObject {
 public:
  /// Null: none yet. Does not block.
  virtual Result<std::unique_ptr<Connection>> accept() = 0;
};

/// The network of one communicator. [setup], but for the last two.
class NetworkContext : public NetworkObject {
 public:
  virtual uint32_t device_count() const = 0;
  virtual Result<tutti_net_properties> properties(uint32_t device) const = 0;
  /// Fills `handle`, which the connecting side gets.
  virtual Result<std::unique_ptr<Listener>> listen(uint32_t device, tutti_net_handle& handle) = 0;
  virtual Result<std::unique_ptr<Connecting>> connect(uint32_t device, const tutti_net_handle& handle) = 0;

  /// With TUTTI_NET_CAP_EVENT_FD: the descriptor, and whether there is work now (false: it may be slept on).
  virtual Result<int> event_fd() { return Status(Code::kUnsupported, "there is no event descriptor"); }
  virtual Result<bool> arm() { return Status(Code::kUnsupported, "there is no event descriptor"); }
};

/// A network plugin. create() is [setup]: one thread at a time.
class Network : public Plugin {
 public:
  using Kind = Network;
  static constexpr uint32_t kKind = TUTTI_KIND_NETWORK;
  static constexpr Abi kAbi = {TUTTI_NETWORK_ABI_MAJOR, TUTTI_NETWORK_ABI_MINOR};

  /// `communicator` is the same number on all its ranks.
  virtual Result<std::unique_ptr<NetworkContext>> create(uint64_t communicator) = 0;

  static const tutti_network_ops* table();

 private:
  template <class T>
  static T& as(void* object) {
    return *static_cast<T*>(object);
  }
  /// Runs `make` (returning Result<std::unique_ptr<T>>) and hands out the object; TUTTI_AGAIN for null.
  template <class Make>
  static int32_t hand_out(const Host& host, void** out, Make&& make) noexcept {
    return guarded(host, [&]() -> int32_t {
      auto made = make();
      if (!made.ok()) return host.fail(made.status());
      if (*made == nullptr) return TUTTI_AGAIN;
      (*made)->host_ = host;
      *out = (*made).release();
      return TUTTI_OK;
    });
  }
  /// Runs `get` (returning Result<T>) and stores its value.
  template <class T, class Get>
  static int32_t store(const Host& host, T* out, Get&& get) noexcept {
    return guarded(host, [&]() -> Status {
      TUTTI_ASSIGN(*out, get());
      return {};
    });
  }
  /// Runs `post`, and hands out the request that it names.
  template <class Post>
  static int32_t post(void* connection, void** out, Post&& post) noexcept {
    auto& to = as<Connection>(connection);
    Request* request = nullptr;
    const int32_t code = guarded(to.host(), [&] { return post(to, request); });
    *out = request;
    return code;
  }

  static int32_t create_thunk(void* self, uint64_t communicator, void** context) {
    auto& network = as<Network>(self);
    return hand_out(network.host(), context, [&] { return network.create(communicator); });
  }
  static int32_t device_count_thunk(void* context, uint32_t* count) {
    const auto& here = as<NetworkContext>(context);
    return guarded(here.host(), [&]() -> int32_t { return *count = here.device_count(), TUTTI_OK; });
  }
  static int32_t properties_thunk(void* context, uint32_t device, tutti_net_properties* out) {
    const auto& here = as<NetworkContext>(context);
    return guarded(here.host(), [&]() -> Status {
      TUTTI_ASSIGN(const tutti_net_properties found, here.properties(device));
      hand_over(found, out);
      return {};
    });
  }
  static int32_t listen_thunk(void* context, uint32_t device, tutti_net_handle* handle, void** listener) {
    auto& here = as<NetworkContext>(context);
    return hand_out(here.host(), listener, [&] { return here.listen(device, *handle); });
  }
  static int32_t connect_thunk(void* context, uint32_t device, const tutti_net_handle* handle, void** state,
                               void** connection) {
    auto& here = as<NetworkContext>(context);
    if (*state == nullptr) {
      const int32_t code = hand_out(here.host(), state, [&] { return here.connect(device, *handle); });
      if (code != TUTTI_OK) return code;
    }
    auto& connecting = as<Connecting>(*state);
    const int32_t code = hand_out(here.host(), connection, [&] { return connecting.advance(); });
    if (code != TUTTI_AGAIN) cancel_thunk(std::exchange(*state, nullptr));
    return code;
  }
  static int32_t accept_thunk(void* listener, void** /*state*/, void** connection) {
    auto& here = as<Listener>(listener);
    return hand_out(here.host(), connection, [&] { return here.accept(); });
  }
  static void cancel_thunk(void* state) { delete static_cast<Connecting*>(state); }

  static int32_t register_thunk(void* connection, void* address, uint64_t bytes, uint32_t memory, void** out) {
    auto& to = as<Connection>(connection);
    return store(to.host(), out, [&] { return to.register_memory(address, bytes, memory); });
  }
  static int32_t dmabuf_thunk(void* connection, void* address, uint64_t bytes, uint64_t offset, int32_t fd,
                              void** out) {
    auto& to = as<Connection>(connection);
    return store(to.host(), out, [&] { return to.register_dmabuf(address, bytes, offset, fd); });
  }
  static int32_t deregister_thunk(void* connection, void* registration) {
    auto& to = as<Connection>(connection);
    return guarded(to.host(), [&] { return to.deregister_memory(registration); });
  }
  static int32_t send_thunk(void* connection, const void* address, uint64_t bytes, uint32_t tag, void* registration,
                            void** request) {
    return post(connection, request,
                [&](Connection& to, Request*& out) { return to.send(address, bytes, tag, registration, out); });
  }
  static int32_t recv_thunk(void* connection, uint32_t count, void* const* addresses, const uint64_t* bytes,
                            const uint32_t* tags, void* const* registrations, void** request) {
    return post(connection, request, [&](Connection& from, Request*& out) {
      return from.recv(count, addresses, bytes, tags, registrations, out);
    });
  }
  static int32_t flush_thunk(void* connection, uint32_t count, void* const* addresses, const uint64_t* bytes,
                             void* const* registrations, void** request) {
    return post(connection, request, [&](Connection& from, Request*& out) {
      return from.flush(count, addresses, bytes, registrations, out);
    });
  }
  static int32_t test_thunk(void* raw, int32_t* done, uint64_t* bytes) {
    auto& request = as<Request>(raw);
    Connection& connection = *request.connection;
    bool is_done = false;
    const int32_t code = guarded(connection.host(), [&] { return connection.test(request, is_done, bytes); });
    *done = is_done ? 1 : 0;
    return code;
  }
  static int32_t event_fd_thunk(void* context, int32_t* fd) {
    auto& here = as<NetworkContext>(context);
    return store(here.host(), fd, [&] { return here.event_fd(); });
  }
  static int32_t arm_thunk(void* context) {
    auto& here = as<NetworkContext>(context);
    bool work = false;
    const int32_t code = store(here.host(), &work, [&] { return here.arm(); });
    return code == TUTTI_OK && work ? TUTTI_AGAIN : code;
  }
};

inline const tutti_network_ops* Network::table() {
  static const tutti_network_ops ops = {sizeof(tutti_network_ops),
                                        0,
                                        create_thunk,
                                        [](void* context) { delete static_cast<NetworkContext*>(context); },
                                        device_count_thunk,
                                        properties_thunk,
                                        listen_thunk,
                                        connect_thunk,
                                        accept_thunk,
                                        cancel_thunk,
                                        register_thunk,
                                        dmabuf_thunk,
                                        deregister_thunk,
                                        send_thunk,
                                        recv_thunk,
                                        flush_thunk,
                                        test_thunk,
                                        [](void* connection) { delete static_cast<Connection*>(connection); },
                                        [](void* listener) { delete static_cast<Listener*>(listener); },
                                        event_fd_thunk,
                                        arm_thunk};
  return &ops;
}

}  // namespace tutti::sdk
