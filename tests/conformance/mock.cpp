// SPDX-License-Identifier: Apache-2.0
// A network over Unix sockets, which commits the fault that its setting `fault` names. It fills the C table itself,
// since the SDK would hide some faults. One thread per context, as the contract allows.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/mock.h"
#include "tutti/plugin/network.h"
#include "tutti/sdk/plugin.h"

namespace tutti::mock {
namespace {

constexpr uint32_t kGroups = 4;

void rest(int64_t us) {
  const timespec time{us / 1'000'000, us % 1'000'000 * 1000};
  nanosleep(&time, nullptr);
}

void spin(int64_t us) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t end = now.tv_sec * 1'000'000'000 + now.tv_nsec + us * 1000;
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while (now.tv_sec * 1'000'000'000 + now.tv_nsec < end);
}

void watch(Context& context, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(context.events, EPOLL_CTL_MOD, fd, &event) != 0) epoll_ctl(context.events, EPOLL_CTL_ADD, fd, &event);
}

/// Faults of the load of the image, before the plugin can read its settings: MOCK_LOAD_FAULT names them.
[[maybe_unused]] const bool loaded = [] {
  const char* const value = std::getenv("MOCK_LOAD_FAULT");
  const std::string fault = value == nullptr ? "" : value;
  while (fault == "blocks") rest(1'000'000);
  if (fault == "crashes") std::abort();
  return true;
}();

// The entries.

int32_t create(void* self, uint64_t /*communicator*/, void** out) {
  auto made = std::make_unique<Context>();
  made->network = static_cast<Network*>(self);
  if (made->has(Fault::kFailingCreate)) return made->fail(TUTTI_SYSTEM, "the mock has no licence");
  made->events = epoll_create1(EPOLL_CLOEXEC);
  if (made->events < 0) return made->fail(TUTTI_SYSTEM, "cannot make an epoll descriptor");
  *out = made.release();
  return TUTTI_OK;
}

void destroy(void* raw) {
  auto* const context = static_cast<Context*>(raw);
  for (Connection* ghost : context->ghosts) {
    close(ghost->fd);
    for (Request* request : ghost->all) delete request;
    delete ghost;
  }
  if (!context->has(Fault::kLeaksContexts)) close(context->events);
  delete context;
}

int32_t device_count(void* raw, uint32_t* count) {
  auto& network = *static_cast<Context*>(raw)->network;
  *count = network.fault == Fault::kUnstableDevices && ++network.asked > 1 ? 2 : 1;
  return TUTTI_OK;
}

int32_t properties(void* raw, uint32_t device, tutti_net_properties* out) {
  const auto& context = *static_cast<Context*>(raw);
  const uint32_t count = context.has(Fault::kUnstableDevices) ? 2 : 1;
  if (device >= count) return context.fail(TUTTI_INVALID_ARGUMENT, "there is no such device");
  *out = {};
  out->struct_size = sizeof *out;
  out->name = sdk::borrow(context.has(Fault::kControlName) ? "unix0\n" : "unix0");
  out->memory = context.has(Fault::kNoHostMemory) ? 0 : TUTTI_MEMORY_HOST;
  if (context.network->takes_dmabufs) out->memory |= TUTTI_MEMORY_DMABUF;
  out->max_grouped_recvs = kGroups;
  out->max_message_bytes = uint64_t{1} << 32;
  out->rail = -1;
  return TUTTI_OK;
}

int32_t listen(void* raw, uint32_t /*device*/, tutti_net_handle* handle, void** out) {
  auto& context = *static_cast<Context*>(raw);
  static std::atomic<uint32_t> number{0};
  auto made = std::make_unique<Listener>();
  made->context = &context;
  made->path = "/tmp/tutti-mock-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  made->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, made->path.c_str(), made->path.size() + 1);
  unlink(made->path.c_str());
  if (bind(made->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made->fd, 128) != 0) {
    close(made->fd);
    return context.fail(TUTTI_SYSTEM, "cannot listen at " + made->path);
  }
  *handle = {};
  std::memcpy(handle->bytes, address.sun_path, std::min(sizeof address.sun_path, sizeof handle->bytes));
  watch(context, made->fd, EPOLLIN);
  context.listeners.insert(made.get());
  *out = made.release();
  return TUTTI_OK;
}

Connection* make_connection(Context& context, int fd) {
  auto* const made = new Connection();
  made->context = &context;
  made->fd = fd;
  if (context.has(Fault::kBlocksStopped)) fcntl(fd, F_SETFL, 0);
  context.connections.insert(made);
  return made;
}

/// The first call begins; the second says the magic and hands the connection out.
int32_t connect(void* raw, uint32_t /*device*/, const tutti_net_handle* handle, void** state, void** out) {
  auto& context = *static_cast<Context*>(raw);
  if (context.has(Fault::kBlockingConnect)) rest(200'000);
  if (*state == nullptr) {
    *state = new Connecting{socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                            context.has(Fault::kLeaksCancelled)};
    return TUTTI_AGAIN;
  }
  auto& connecting = *static_cast<Connecting*>(*state);
  if (context.has(Fault::kNeverConnects)) return TUTTI_AGAIN;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, handle->bytes, sizeof address.sun_path - 1);
  const int code = ::connect(connecting.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (code != 0 && errno == EAGAIN) return TUTTI_AGAIN;  // its queue is full
  const bool failed = code != 0 || ::send(connecting.fd, &kMagic, sizeof kMagic, MSG_NOSIGNAL) != sizeof kMagic;
  const int fd = std::exchange(connecting.fd, -1);
  delete static_cast<Connecting*>(std::exchange(*state, nullptr));
  if (failed) {
    close(fd);
    return context.fail(TUTTI_REMOTE, "nothing listens at " + std::string(address.sun_path));
  }
  *out = make_connection(context, fd);
  return TUTTI_OK;
}

/// 1: the guest has said the magic; 0: not yet; -1: it is a stranger.
int greet(const Context& context, int guest) {
  uint32_t magic = 0;
  const int flags = context.has(Fault::kStrangerBlocks) ? MSG_WAITALL : MSG_DONTWAIT;
  const ssize_t seen = ::recv(guest, &magic, sizeof magic, flags | MSG_PEEK);
  if (seen < 0 && errno == EAGAIN) return 0;
  if (seen != sizeof magic) return seen <= 0 ? -1 : 0;
  return ::recv(guest, &magic, sizeof magic, MSG_DONTWAIT) == sizeof magic && magic == kMagic ? 1 : -1;
}

void progress_ghosts(Context& context) {
  for (Connection* ghost : context.ghosts) progress(*ghost);
}

int32_t accept(void* raw, void** /*state*/, void** out) {
  auto& listener = *static_cast<Listener*>(raw);
  Context& context = *listener.context;
  progress_ghosts(context);
  if (context.has(Fault::kEarlySend)) {  // sends that were complete too early go on
    for (Connection* connection : context.connections) progress(*connection);
  }
  for (int fd = 0; (fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    if (!context.has(Fault::kStrangerBlocks)) fcntl(fd, F_SETFL, O_NONBLOCK);
    watch(context, fd, EPOLLIN | EPOLLET);
    listener.guests.push_back(fd);
  }
  for (size_t i = 0; i < listener.guests.size(); ++i) {
    const int guest = listener.guests[i];
    const int said = greet(context, guest);
    if (said == 0) continue;
    listener.guests.erase(listener.guests.begin() + static_cast<long>(i));
    if (said > 0) {
      if (!context.has(Fault::kBlocksStopped)) fcntl(guest, F_SETFL, O_NONBLOCK);
      *out = make_connection(context, guest);
      return TUTTI_OK;
    }
    close(guest);
    if (context.has(Fault::kStrangerFails)) return context.fail(TUTTI_REMOTE, "a stranger came");
    --i;
  }
  return TUTTI_AGAIN;
}

void cancel(void* raw) {
  auto* const connecting = static_cast<Connecting*>(raw);
  if (!connecting->leaks) close(connecting->fd);
  delete connecting;
}

int32_t broken(const Connection& connection) {
  return connection.context->fail(connection.context->has(Fault::kWrongCode) ? TUTTI_INTERNAL : TUTTI_REMOTE,
                                  "the peer has closed the connection between unix0 and unix0");
}

bool is_full(const Connection& connection) {
  return connection.context->has(Fault::kFewRequests) &&
         std::count_if(connection.all.begin(), connection.all.end(), [](Request* one) { return !one->is_done; }) >= 16;
}

int32_t send(void* raw, const void* address, uint64_t bytes, uint32_t tag, void* registration, void** request) {
  auto& connection = *static_cast<Connection*>(raw);
  Context& context = *connection.context;
  if (context.has(Fault::kThrowingSend) && connection.messages >= kEarliest) throw std::runtime_error("no way out");
  if (context.has(Fault::kSleepingSend) && connection.messages % 50 == 10) rest(40'000);
  if (connection.is_broken) return broken(connection);
  if (is_full(connection)) return TUTTI_AGAIN;
  if (context.has(Fault::kIgnoresOffset) && registration != nullptr) {
    address = static_cast<const Registration*>(registration)->begin;
  }
  auto* const made = new Request();
  made->connection = &connection;
  made->is_send = true;
  made->frame = {kMagic, tag, bytes};
  made->parts.push_back({source_of(address, registration), bytes, tag, 0, false, false});
  connection.all.insert(made);
  queue(connection, made);
  push_all(connection);
  *request = made;
  return TUTTI_OK;
}

int32_t recv(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
             void* const* registrations, void** request) {
  auto& connection = *static_cast<Connection*>(raw);
  const Context& context = *connection.context;
  if (connection.is_broken) return context.has(Fault::kSilentEnd) ? TUTTI_AGAIN : broken(connection);
  if (context.has(Fault::kNoGroups) && count > 1) return context.fail(TUTTI_UNSUPPORTED, "one message per receive");
  if (is_full(connection)) return TUTTI_AGAIN;
  auto* const made = new Request();
  made->connection = &connection;
  for (uint32_t i = 0; i < count; ++i) {
    auto at = reinterpret_cast<uintptr_t>(target_of(addresses[i], registrations[i]));
    if (context.has(Fault::kRoundsAddress)) at &= ~uintptr_t{7};
    made->parts.push_back({reinterpret_cast<uint8_t*>(at), bytes[i], tags[i], 0, false, false});
  }
  connection.all.insert(made);
  connection.receives.push_back(made);
  *request = made;
  return TUTTI_OK;
}

void report_lengths(const Context& context, const Request& request, uint64_t* bytes) {
  for (size_t i = 0; i < request.parts.size(); ++i) {
    const Part& part = request.parts[i];
    bytes[i] = std::min(part.got, part.room);
    if (context.has(Fault::kWrongLength) && part.got > 16 && part.got < part.room) ++bytes[i];
    if (context.has(Fault::kRoomAsLength)) bytes[i] = part.room;
    if (context.has(Fault::kGroupLengths)) bytes[i] = request.parts[0].got;
  }
}

/// Whether the fault completes a request that is not done.
bool is_early(const Context& context, const Request& request) {
  const bool is_first = request.parts[0].room == 16;  // the kit introduces connections
  if (is_first) return false;
  return context.has(request.is_send ? Fault::kEarlySend : Fault::kEarlyReceive);
}

int32_t test(void* raw, int32_t* done, uint64_t* bytes) {
  auto* const request = static_cast<Request*>(raw);
  Connection& connection = *request->connection;
  const Context& context = *connection.context;
  *done = 0;
  if (context.has(Fault::kBlockingTest) && (connection.messages >= kEarliest || !request->is_send)) {
    for (;;) rest(1'000'000);
  }
  if (context.has(Fault::kSlowTest)) spin(500);
  progress(connection);
  if (request->is_done || is_early(context, *request)) {
    *done = 1;
    if (bytes != nullptr && !request->is_send) report_lengths(context, *request, bytes);
    if (!request->is_done) return TUTTI_OK;  // the connection frees it
    connection.all.erase(request);
    if (!context.has(Fault::kLeaksRequests)) delete request;
    return TUTTI_OK;
  }
  if (request->too_long && !context.has(Fault::kIgnoresRoom)) {
    return context.fail(TUTTI_MISMATCH, "a message is longer than its buffer");
  }
  if (!connection.is_broken || context.has(Fault::kSilentEnd)) return TUTTI_AGAIN;
  return broken(connection);
}

void close_connection(void* raw) {
  auto* const connection = static_cast<Connection*>(raw);
  Context& context = *connection->context;
  if (context.has(Fault::kCrashes)) std::abort();
  context.connections.erase(connection);
  if (context.has(Fault::kUsesAfterClose) || context.has(Fault::kReadsAfterClose)) {
    context.ghosts.push_back(connection);
    return;
  }
  epoll_ctl(context.events, EPOLL_CTL_DEL, connection->fd, nullptr);
  if (context.has(Fault::kLeaksDescriptors)) {
    shutdown(connection->fd, SHUT_RDWR);
  } else {
    close(connection->fd);
  }
  for (Request* request : connection->all) delete request;
  delete connection;
}

void close_listener(void* raw) {
  auto* const listener = static_cast<Listener*>(raw);
  listener->context->listeners.erase(listener);
  for (const int guest : listener->guests) close(guest);
  if (!listener->context->has(Fault::kLeaksListeners)) close(listener->fd);
  unlink(listener->path.c_str());
  delete listener;
}

int32_t event_fd(void* raw, int32_t* fd) {
  const auto& context = *static_cast<Context*>(raw);
  *fd = context.has(Fault::kClosedEventFd) ? 999 : context.events;
  return TUTTI_OK;
}

/// Level-triggered: a socket is watched only for events that its requests need.
int32_t arm(void* raw) {
  auto& context = *static_cast<Context*>(raw);
  if (context.has(Fault::kSleeplessArm)) return TUTTI_AGAIN;
  bool has_work = false;
  for (Connection* connection : context.connections) {
    const bool reads = !connection->receives.empty() && !connection->end_seen && !context.has(Fault::kLyingArm);
    watch(context, connection->fd, (reads ? EPOLLIN : 0u) | (connection->sends.empty() ? 0u : EPOLLOUT));
    for (const Request* request : connection->all) has_work = has_work || request->is_done;
  }
  if (has_work) return TUTTI_AGAIN;
  pollfd ready{context.events, POLLIN, 0};
  if (poll(&ready, 1, 0) == 0) return TUTTI_OK;
  std::array<epoll_event, 16> events{};
  epoll_wait(context.events, events.data(), events.size(), 0);  // takes the edges of guests
  return TUTTI_AGAIN;
}

const tutti_network_ops kOps = {sizeof(tutti_network_ops),
                                0,
                                create,
                                destroy,
                                device_count,
                                properties,
                                listen,
                                connect,
                                accept,
                                cancel,
                                register_memory,
                                register_dmabuf,
                                deregister_memory,
                                send,
                                recv,
                                flush,
                                test,
                                close_connection,
                                close_listener,
                                event_fd,
                                arm};

int32_t open(const tutti_host* raw, void** self) {
  auto network = std::make_unique<Network>();
  network->host = sdk::Host(raw);
  const std::string name = network->host.text("fault");
  const auto found = std::find(kFaultNames.begin(), kFaultNames.end(), name);
  if (found == kFaultNames.end()) {
    return network->host.fail(Status(Code::kConfig, "settings.net.mock.fault is '" + name + "', which is no fault"));
  }
  network->fault = static_cast<Fault>(found - kFaultNames.begin());
  while (network->fault == Fault::kBlockingOpen) rest(1'000'000);
  if (network->fault == Fault::kCrashingOpen) std::abort();
  network->takes_dmabufs = network->host.boolean("dmabufs");
  *self = network.release();
  return TUTTI_OK;
}

void close_plugin(void* self) {
  if (static_cast<Network*>(self)->fault == Fault::kCrashingClose) std::abort();
  delete static_cast<Network*>(self);
}

}  // namespace
}  // namespace tutti::mock

extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  using namespace tutti;
  static const std::array<tutti_config_key, 2> kSettings = {
      sdk::setting(TUTTI_CONFIG_TEXT, "fault", "none", "The fault that the mock commits: a name of faults.h."),
      sdk::setting(TUTTI_CONFIG_BOOL, "dmabufs", "false", "Whether the device registers dmabufs, which mmap can map.")};
  *out = {};
  out->struct_size = sizeof *out;
  out->kind = TUTTI_KIND_NETWORK;
  out->abi_major = TUTTI_NETWORK_ABI_MAJOR;
  out->abi_minor = TUTTI_NETWORK_ABI_MINOR;
  out->name = sdk::borrow("mock");
  out->version = sdk::borrow("1.0");
  out->description = sdk::borrow("a network over Unix sockets, with faults");
  out->capabilities = TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_EVENT_FD | TUTTI_NET_CAP_DMABUF | TUTTI_NET_CAP_FLUSH;
  out->config_keys = kSettings.data();
  out->config_key_count = kSettings.size();
  out->open = mock::open;
  out->close = mock::close_plugin;
  out->ops = &mock::kOps;
  return TUTTI_OK;
}
