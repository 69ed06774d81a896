// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/entries.h"

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "nccl_net/connection.h"
#include "nccl_net/context.h"

namespace tutti::nccl_net::entries {
namespace {

using nccl_plugins::kNcclInternalError;
using nccl_plugins::kNcclInvalidArgument;
using nccl_plugins::kNcclSuccess;

/// What `init` gives to NCCL.
using Holder = std::shared_ptr<Context>;

std::mutex process_mutex;           // guards process_context
Holder* process_context = nullptr;  // never destroyed: NCCL has no call for its end

/// Notices that `init` is called while this thread is in `init`: the network beneath loads plugins of NCCL, and loads
/// this one.
class InitScope {
 public:
  InitScope() { state = State::kInside; }
  ~InitScope() { state = State::kOutside; }
  InitScope(const InitScope&) = delete;
  InitScope& operator=(const InitScope&) = delete;

  /// True: the call is such a call.
  static bool is_nested() {
    if (state == State::kOutside) return false;
    state = State::kNested;
    return true;
  }
  static bool was_nested() { return state == State::kNested; }

 private:
  enum class State { kOutside, kInside, kNested };
  static thread_local State state;
};
thread_local InitScope::State InitScope::state = State::kOutside;

template <class Body>
int guarded(const char* entry, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    warn_of_exception(entry, error.what());
  } catch (...) {
    warn_of_exception(entry, "an exception of an unknown type");
  }
  return kNcclInternalError;
}

int report(const Status& status) {
  if (status.ok()) return kNcclSuccess;
  warn(std::string(status.text()));
  return result_of(status.code());
}

/// Hands out an object that an entry has made; null: not yet.
template <class Object>
int hand_out(Result<std::unique_ptr<Object>> made, void** out) {
  if (!made.ok()) return report(made.status());
  *out = (*made).release();
  return kNcclSuccess;
}

Result<Holder> make_context(uint64_t communicator) {
  TUTTI_ASSIGN(Network* const network, Network::of_process());
  return Context::create(*network, communicator);
}

Result<Holder> create_context(uint64_t communicator) {
  const InitScope scope;
  auto context = make_context(communicator);
  if (context.ok() || !InitScope::was_nested()) return context;
  return Status(Code::kConfig,
                "the network beneath libnccl-net-tutti.so is libnccl-net-tutti.so itself; name another network in "
                "TUTTI_NET, for example TUTTI_NET=socket");
}

Holder context_of(void* context) {
  if (context != nullptr) return *static_cast<Holder*>(context);
  const std::lock_guard lock(process_mutex);
  return process_context == nullptr ? nullptr : *process_context;
}

int without_context(const char* entry) {
  warn(std::string(entry) + ": there is no context; call init first");
  return kNcclInvalidArgument;
}

Connection& connection_of(void* comm) {
  return *static_cast<Connection*>(comm);
}

}  // namespace

int init(void** context, uint64_t communicator, Logger* logger) noexcept {
  return guarded("init", [&] {
    if (InitScope::is_nested()) return int{kNcclInternalError};
    set_logger(logger);
    auto made = create_context(communicator);
    if (!made.ok()) return report(made.status());
    *context = std::make_unique<Holder>(*std::move(made)).release();
    return int{kNcclSuccess};
  });
}

int init_process(Logger* logger) noexcept {
  return guarded("init", [&] {
    if (InitScope::is_nested()) return int{kNcclInternalError};
    set_logger(logger);
    const std::lock_guard lock(process_mutex);
    if (process_context != nullptr) return int{kNcclSuccess};
    auto made = create_context(0);
    if (!made.ok()) return report(made.status());
    process_context = std::make_unique<Holder>(*std::move(made)).release();
    return int{kNcclSuccess};
  });
}

int finalize(void* context) noexcept {
  return guarded("finalize", [&] {
    delete static_cast<Holder*>(context);
    return int{kNcclSuccess};
  });
}

int devices(int* count) noexcept {
  const Network* const network = Network::opened();
  *count = network == nullptr ? 0 : static_cast<int>(network->devices().size());
  return kNcclSuccess;
}

const Device* device(int index) noexcept {
  const Network* const network = Network::opened();
  const bool is_there = network != nullptr && index >= 0 && static_cast<size_t>(index) < network->devices().size();
  return is_there ? &network->devices()[static_cast<size_t>(index)] : nullptr;
}

int listen(void* context, int device, void* handle, void** listener) noexcept {
  return guarded("listen", [&] {
    *listener = nullptr;
    Holder holder = context_of(context);
    if (holder == nullptr) return without_context("listen");
    return hand_out(Listener::open(std::move(holder), device, handle), listener);
  });
}

int connect(void* context, int device, void* handle, void** comm) noexcept {
  return guarded("connect", [&] {
    *comm = nullptr;
    const Holder holder = context_of(context);
    if (holder == nullptr) return without_context("connect");
    return hand_out(holder->connect(device, handle), comm);
  });
}

int accept(void* listener, void** comm) noexcept {
  return guarded("accept", [&] {
    *comm = nullptr;
    return hand_out(static_cast<Listener*>(listener)->accept(), comm);
  });
}

int add_region(void* comm, void* data, size_t bytes, int memory, void** region) noexcept {
  return guarded("regMr", [&] { return connection_of(comm).add_region(data, bytes, memory, region); });
}

int add_dmabuf(void* comm, void* data, size_t bytes, int /*memory*/, uint64_t offset, int fd, void** region) noexcept {
  return guarded("regMrDmaBuf", [&] { return connection_of(comm).add_dmabuf(data, bytes, offset, fd, region); });
}

int remove_region(void* comm, void* region) noexcept {
  return guarded("deregMr", [&] { return connection_of(comm).remove_region(region); });
}

int send(void* comm, void* data, size_t bytes, int tag, void* region, void** request) noexcept {
  return guarded("isend", [&] { return connection_of(comm).send(data, bytes, tag, region, request); });
}

/// A marker in *request says that NCCL does not need the completion. It is reported all the same.
template <class Size>
int receive(void* comm, int count, void** data, const Size* sizes, const int* tags, void** regions,
            void** request) noexcept {
  return guarded("irecv", [&] {
    *request = nullptr;
    if (count < 1 || count > static_cast<int>(Buffers::kMost)) {
      warn("irecv takes 1 to 8 buffers");
      return int{kNcclInvalidArgument};
    }
    Buffers buffers;
    for (int i = 0; i < count; ++i) {
      buffers.add(data[i], static_cast<uint64_t>(sizes[i]), static_cast<uint32_t>(tags[i]), regions[i]);
    }
    return connection_of(comm).receive(buffers, request);
  });
}
template int receive(void*, int, void**, const int*, const int*, void**, void**) noexcept;
template int receive(void*, int, void**, const size_t*, const int*, void**, void**) noexcept;

/// Entries without bytes stand for nothing.
int flush(void* comm, int count, void** data, int* sizes, void** regions, void** request) noexcept {
  return guarded("iflush", [&] {
    Buffers buffers;
    for (int i = 0; i < count && buffers.count < Buffers::kMost; ++i) {
      if (sizes[i] > 0) buffers.add(data[i], static_cast<uint64_t>(sizes[i]), 0, regions[i]);
    }
    return connection_of(comm).flush(buffers, request);
  });
}

int test(void* raw, int* done, int* sizes) noexcept {
  return guarded("test", [&] {
    auto& request = *static_cast<Request*>(raw);
    return request.connection->test(request, done, sizes);
  });
}

int close_comm(void* comm) noexcept {
  return guarded("close", [&] {
    delete static_cast<Connection*>(comm);
    return int{kNcclSuccess};
  });
}

int close_listener(void* listener) noexcept {
  return guarded("closeListen", [&] {
    delete static_cast<Listener*>(listener);
    return int{kNcclSuccess};
  });
}

}  // namespace tutti::nccl_net::entries
