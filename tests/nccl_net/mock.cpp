// SPDX-License-Identifier: Apache-2.0
// A mock of an NCCL network plugin in the version MOCK_VERSION, which carries real data. It fails where the host breaks
// a rule that NCCL keeps: the state of a connect stays in its handle, regions belong to messages, init is called once.
//
//   MOCK_SYMBOL    name of the exported table        MOCK_RECEIVES  buffers of one receive; 1: tags are ignored
//   MOCK_NAME      name of the network               MOCK_DEFECT    0 none, 1 init fails, 2 no devices
#include <netinet/tcp.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <string>

#include "tables.h"
#include "wire.h"

#ifndef MOCK_DEFECT
#define MOCK_DEFECT 0
#endif
#ifndef MOCK_RECEIVES
#define MOCK_RECEIVES 8
#endif

namespace {

constexpr int kDevices = 2;
constexpr const char* kNames[kDevices] = {MOCK_NAME "_0", MOCK_NAME "_1"};
constexpr uint64_t kContextMagic = 0x636f6e7465787421;

Log logger = nullptr;
int inits = 0;

int wrong(const char* what) {
  logger(2, 0x10, __FILE__, __LINE__, "the host breaks a rule: %s", what);
  return kInternalError;
}

struct Context {
  uint64_t magic = kContextMagic;
};

struct Region {
  uint64_t magic = kMagic;
  uint8_t* begin = nullptr;
  uint64_t bytes = 0;
};

bool holds(const void* raw, const void* data, uint64_t bytes) {
  const auto* const region = static_cast<const Region*>(raw);
  const auto* const begin = static_cast<const uint8_t*>(data);
  return region != nullptr && region->magic == kMagic && begin >= region->begin &&
         begin + bytes <= region->begin + region->bytes;
}

struct Handle {
  uint64_t magic = kMagic;
  sockaddr_in address{};
  Handle* self = nullptr;  // once a connect has begun
  int fd = -1;
};
static_assert(sizeof(Handle) <= 128);

struct Listener {
  Socket socket;
  std::list<Socket> guests;
};

int begin(Log log) {
  logger = log;
  log(3, 0x11, __FILE__, __LINE__, "mock of version %d begins", MOCK_VERSION);
  if (MOCK_DEFECT == 1) {
    log(2, 0x11, __FILE__, __LINE__, "no cable in port %d", 7);
    return kSystemError;
  }
  return kOk;
}

#if MOCK_SINCE(10)
bool has_profiler(Profile profile) {
  void* event = nullptr;
  return profile != nullptr && profile(&event, 0, nullptr, 0, nullptr) == kOk;
}
#endif

#if MOCK_SINCE(11)
int init(void** context, uint64_t /*communicator*/, Settings* settings, Log log, Profile profile) {
  if (const int code = begin(log); code != kOk) return code;
  if (settings == nullptr || !has_profiler(profile)) return wrong("init gets settings and a profiler");
  *context = new Context;
  ++inits;
  return kOk;
}
int finalize(void* raw) {
  const std::unique_ptr<Context> context(static_cast<Context*>(raw));
  return context != nullptr && context->magic == kContextMagic ? kOk : wrong("finalize gets its context");
}
bool is_context(const void* context) {
  return context != nullptr && static_cast<const Context*>(context)->magic == kContextMagic;
}
#else
#if MOCK_SINCE(10)
int init(Log log, Profile profile) {
  if (!has_profiler(profile)) return kInternalError;
#else
int init(Log log) {
#endif
  if (const int code = begin(log); code != kOk) return code;
  return ++inits == 1 ? kOk : wrong("init is called once per process");
}
#endif

int devices(int* count) {
  if (inits == 0) return kInternalError;
  *count = MOCK_DEFECT == 2 ? 0 : kDevices;
  return kOk;
}

int properties(int device, Properties* out) {
  *out = {};
  out->name = kNames[device];
  out->guid = static_cast<uint64_t>(device) + 1;
  out->memory = 1;
  out->speed = 10000;
  out->port = 1;
  out->latency = 5;
  out->comms = 4;  // NCCL does not hold a plugin to it
  out->receives = MOCK_RECEIVES;
#if MOCK_SINCE(9)
  out->part_count = 1;
  out->parts[0] = device;
  out->most_bytes = out->most_collective_bytes = uint64_t{1} << 40;
#endif
#if MOCK_SINCE(12)
  out->rail = static_cast<int16_t>(device);
  out->plane = -1;
#endif
  return kOk;
}

int open_listener(void* raw, void** out) {
  auto listener = std::make_unique<Listener>();
  listener->socket = make_socket();
  Handle handle;
  handle.address.sin_family = AF_INET;
  handle.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof handle.address;
  auto* const address = reinterpret_cast<sockaddr*>(&handle.address);
  const int fd = listener->socket.get();
  if (bind(fd, address, size) != 0 || ::listen(fd, SOMAXCONN) != 0 || getsockname(fd, address, &size) != 0) {
    return kSystemError;
  }
  std::memcpy(raw, &handle, sizeof handle);
  *out = listener.release();
  return kOk;
}

void set_up(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// The state is in the handle, as in NCCL's plugins.
int advance_connect(void* raw, void** comm) {
  auto& handle = *static_cast<Handle*>(raw);
  *comm = nullptr;
  if (handle.magic != kMagic) return wrong("connect gets the handle of a listener");
  if (handle.self == nullptr) {
    handle.self = &handle;
    Socket socket = make_socket();
    const auto* const address = reinterpret_cast<const sockaddr*>(&handle.address);
    if (::connect(socket.get(), address, sizeof handle.address) != 0 && errno != EINPROGRESS) return kRemoteError;
    handle.fd = socket.release();
    return kOk;
  }
  if (handle.self != &handle) return wrong("connect gets the same handle until the connection stands");
  pollfd ready{handle.fd, POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) return kOk;
  Socket socket(std::exchange(handle.fd, -1));
  set_up(socket);
  if (::send(socket.get(), &kMagic, sizeof kMagic, MSG_NOSIGNAL) != ssize_t{sizeof kMagic}) return kRemoteError;
  *comm = new Comm(std::move(socket), true, MOCK_RECEIVES == 1);
  return kOk;
}

/// A guest becomes a connection when it has sent the magic number. Other guests are strangers.
int advance_accept(void* raw, void** comm) {
  auto& listener = *static_cast<Listener*>(raw);
  *comm = nullptr;
  for (int fd = 0; (fd = accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    listener.guests.emplace_back(fd);
  }
  for (auto guest = listener.guests.begin(); guest != listener.guests.end();) {
    uint64_t magic = 0;
    const ssize_t seen = ::recv(guest->get(), &magic, sizeof magic, MSG_PEEK);
    const bool is_quiet = seen < 0 && (errno == EAGAIN || errno == EINTR);
    if (is_quiet || (seen > 0 && seen < ssize_t{sizeof magic})) {
      ++guest;
      continue;
    }
    Socket socket = std::move(*guest);
    guest = listener.guests.erase(guest);
    if (seen < 0 || magic != kMagic || ::recv(socket.get(), &magic, sizeof magic, 0) != sizeof magic) continue;
    set_up(socket);
    *comm = new Comm(std::move(socket), false, MOCK_RECEIVES == 1);
    return kOk;
  }
  return kOk;
}

#if MOCK_SINCE(11)
int listen_at(void* context, int /*device*/, void* handle, void** listener) {
  return is_context(context) ? open_listener(handle, listener) : wrong("listen gets its context");
}
int connect_to(void* context, int /*device*/, void* handle, void** comm, void** /*device_handle*/) {
  return is_context(context) ? advance_connect(handle, comm) : wrong("connect gets its context");
}
#else
int listen_at(int /*device*/, void* handle, void** listener) {
  return open_listener(handle, listener);
}
#if MOCK_SINCE(10)
int connect_to(int /*device*/, Settings* settings, void* handle, void** comm, void** /*device_handle*/) {
  return settings != nullptr ? advance_connect(handle, comm) : wrong("connect gets settings");
}
#elif MOCK_SINCE(7)
int connect_to(int /*device*/, void* handle, void** comm, void** /*device_handle*/) {
  return advance_connect(handle, comm);
}
#else
int connect_to(int /*device*/, void* handle, void** comm) {
  return advance_connect(handle, comm);
}
#endif
#endif
#if MOCK_SINCE(7)
int accept_from(void* listener, void** comm, void** /*device_handle*/) {
  return advance_accept(listener, comm);
}
#else
int accept_from(void* listener, void** comm) {
  return advance_accept(listener, comm);
}
#endif

int add_region(void* /*comm*/, void* data, RegionSize bytes, int memory, void** region) {
  if (memory != 1) return wrong("only memory of the host is registered");
  *region = new Region{kMagic, static_cast<uint8_t*>(data), static_cast<uint64_t>(bytes)};
  return kOk;
}
int remove_region(void* /*comm*/, void* raw) {
  auto* const region = static_cast<Region*>(raw);
  if (region == nullptr || region->magic != kMagic) return wrong("deregMr gets a region");
  region->magic = 0;
  delete region;
  return kOk;
}

int post_send(void* raw, void* data, uint64_t bytes, int tag, const void* region, void** out) {
  auto& comm = *static_cast<Comm*>(raw);
  *out = nullptr;
  if (!comm.sends || !holds(region, data, bytes)) return wrong("isend gets memory of its region");
  if (comm.is_broken) return kRemoteError;
  Request* const request = comm.post();
  if (request == nullptr) return kOk;
  request->header.bytes = bytes;
  request->header.tag = tag;
  request->parts.push_back({static_cast<uint8_t*>(data), bytes, tag});
  *out = request;
  return kOk;
}
int post_receive(void* raw, int count, void** data, const Size* sizes, const int* tags, void** regions, void** out) {
  auto& comm = *static_cast<Comm*>(raw);
  if (*out != nullptr) return wrong("irecv asks for no optional completion");
  if (count < 1 || count > MOCK_RECEIVES) return wrong("irecv takes as many buffers as its device");
  for (int i = 0; i < count; ++i) {
    if (!holds(regions[i], data[i], static_cast<uint64_t>(sizes[i]))) return wrong("irecv gets memory of its regions");
  }
  if (comm.is_broken) return kRemoteError;
  Request* const request = comm.post();
  if (request == nullptr) return kOk;
  for (int i = 0; i < count; ++i) {
    request->parts.push_back({static_cast<uint8_t*>(data[i]), static_cast<uint64_t>(sizes[i]), tags[i]});
  }
  *out = request;
  return kOk;
}

#if MOCK_SINCE(10)
int send_from(void* comm, void* data, Size bytes, int tag, void* region, void* /*parent*/, void** request) {
  return post_send(comm, data, bytes, tag, region, request);
}
int receive_at(void* comm, int count, void** data, Size* sizes, int* tags, void** regions, void** parents,
               void** request) {
  if (parents == nullptr) return wrong("irecv gets parent events");
  return post_receive(comm, count, data, sizes, tags, regions, request);
}
#else
int send_from(void* comm, void* data, Size bytes, int tag, void* region, void** request) {
  return post_send(comm, data, static_cast<uint64_t>(bytes), tag, region, request);
}
int receive_at(void* comm, int count, void** data, Size* sizes, int* tags, void** regions, void** request) {
  return post_receive(comm, count, data, sizes, tags, regions, request);
}
#endif

int flush(void* /*comm*/, int /*count*/, void** /*data*/, int* /*sizes*/, void** /*regions*/, void** request) {
  *request = nullptr;
  return kOk;
}

int test(void* raw, int* done, int* sizes) {
  auto& request = *static_cast<Request*>(raw);
  Comm& comm = *request.comm;
  *done = 0;
  if (comm.ignores_tags && &comm.requests.front() != &request) return wrong("the oldest request is tested first");
  if (!request.is_done()) comm.sends ? comm.push() : comm.pull();
  if (!request.is_done()) {
    if (request.is_too_long) return kInternalError;
    return comm.is_broken ? kRemoteError : kOk;
  }
  *done = 1;
  if (!comm.sends) {
    for (size_t i = 0; i < request.parts.size(); ++i) sizes[i] = static_cast<int>(request.parts[i].bytes);
  }
  comm.requests.remove_if([&](const Request& one) { return &one == &request; });
  return kOk;
}

int close_comm(void* comm) {
  delete static_cast<Comm*>(comm);
  return kOk;
}
int close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return kOk;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Net MOCK_SYMBOL;
const Net MOCK_SYMBOL = {
    MOCK_NAME,     init,      devices,    properties, listen_at, connect_to, accept_from, add_region,     nullptr,
    remove_region, send_from, receive_at, flush,      test,      close_comm, close_comm,  close_listener,
#if MOCK_SINCE(7)
    nullptr,       nullptr,
#endif
#if MOCK_SINCE(9)
    nullptr,
#endif
#if MOCK_SINCE(11)
    finalize,      nullptr,
#endif
};
