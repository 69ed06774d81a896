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
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/faults.h"
#include "tutti/sdk/plugin.h"
#include "tutti/plugin/network.h"

namespace tutti::mock {
namespace {

constexpr uint32_t kMagic = 0x6d6f636b;
constexpr size_t kEarliest = 4;  // messages before this one are whole: connections stand with most faults
constexpr uint32_t kGroups = 4;

struct Frame {
  uint32_t magic = kMagic;
  uint32_t tag = 0;
  uint64_t bytes = 0;
};

struct Part {
  uint8_t* address = nullptr;
  uint64_t room = 0;
  uint32_t tag = 0;
  uint64_t got = 0;
  bool taken = false;  ///< a message has begun to arrive in it
  bool full = false;
};

struct Connection;
struct Request {
  Connection* connection = nullptr;
  bool is_send = false;
  bool is_done = false;
  std::vector<Part> parts;
  Frame frame;
  std::vector<uint8_t> copy;  ///< of a message that the fault changes
  uint64_t moved = 0;         ///< bytes of the frame and the message that were sent
  bool too_long = false;
};

struct Context;
struct Connection {
  Context* context = nullptr;
  int fd = -1;
  size_t messages = 0;  ///< posted sends
  bool is_broken = false;
  std::deque<Request*> sends;     ///< not yet done, oldest first
  std::deque<Request*> receives;  ///< not yet done, oldest first
  std::set<Request*> all;
  Frame frame;  ///< of the message that arrives
  uint64_t frame_bytes = 0;
  Part* into = nullptr;
  Request* into_request = nullptr;
  uint64_t arrived = 0;
  bool end_seen = false;
};

struct Listener {
  Context* context = nullptr;
  int fd = -1;
  std::string path;
  std::vector<int> guests;  ///< sockets that have not said the magic yet
};

struct Connecting {
  int fd = -1;
  bool leaks = false;
};

struct Network {
  sdk::Host host;
  Fault fault = Fault::kNone;
  uint32_t asked = 0;
};

struct Context {
  Network* network = nullptr;
  int events = -1;
  std::set<Connection*> connections;
  std::set<Listener*> listeners;
  std::vector<Connection*> ghosts;  ///< closed, but still used: a fault

  bool has(Fault fault) const { return network->fault == fault; }
  int32_t fail(int32_t code, const std::string& text) const {
    if (has(Fault::kNoReason)) return code;
    return network->host.fail(Status(static_cast<Code>(code), text));
  }
};

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

// Sending.

void break_off(Connection& connection) {
  connection.is_broken = true;
}

/// Sends what the socket takes of the oldest send. True if the send is complete.
bool push(Connection& connection, Request& request) {
  const Part& part = request.parts[0];
  const uint64_t total = sizeof(Frame) + part.room;
  while (request.moved < total) {
    const bool in_frame = request.moved < sizeof(Frame);
    const uint8_t* const from = in_frame ? reinterpret_cast<const uint8_t*>(&request.frame) + request.moved
                                         : part.address + (request.moved - sizeof(Frame));
    const size_t bytes = in_frame ? sizeof(Frame) - request.moved : total - request.moved;
    const int flags = MSG_NOSIGNAL | (connection.context->has(Fault::kBlocksStopped) ? 0 : MSG_DONTWAIT);
    const ssize_t sent = ::send(connection.fd, from, std::min<size_t>(bytes, 64 * 1024), flags);
    if (sent < 0 && errno == EAGAIN) return false;
    if (sent < 0) return break_off(connection), false;
    request.moved += static_cast<uint64_t>(sent);
  }
  return true;
}

void push_all(Connection& connection) {
  while (!connection.is_broken && !connection.sends.empty() && push(connection, *connection.sends.front())) {
    connection.sends.front()->is_done = true;
    connection.sends.pop_front();
  }
}

/// Replaces the message by a copy that the fault changes.
void change(Connection& connection, Request& request) {
  Part& part = request.parts[0];
  const Context& context = *connection.context;
  request.copy.assign(part.address, part.address + part.room);
  if (context.has(Fault::kCorrupted)) request.copy[part.room / 2] ^= 4;
  if (context.has(Fault::kTruncated)) std::fill(request.copy.end() - 8, request.copy.end(), uint8_t{0});
  part.address = request.copy.data();
}

/// Queues a send, with the faults that concern whole messages.
void queue(Connection& connection, Request* request) {
  const Context& context = *connection.context;
  const size_t number = connection.messages++;
  const uint64_t bytes = request->parts[0].room;
  const bool is_changed = (context.has(Fault::kCorrupted) && number == 9 && bytes > 0) ||
                          (context.has(Fault::kTruncated) && bytes >= 1 << 20);
  if (is_changed) change(connection, *request);
  const bool is_lost = (context.has(Fault::kLost) && number == 11) || (context.has(Fault::kLosesEmpty) && bytes == 0);
  if (is_lost && number >= kEarliest - 1) {
    request->is_done = true;
    return;
  }
  connection.sends.push_back(request);
  if (context.has(Fault::kSwapped) && number > 10 && number % 5 == 0 && connection.sends.size() > 2 &&
      connection.sends[connection.sends.size() - 2]->moved == 0) {
    std::swap(connection.sends.back(), connection.sends[connection.sends.size() - 2]);
  }
  if (context.has(Fault::kDoubled) && number == 12) {
    auto* const again = new Request(*request);  // the connection frees it
    connection.all.insert(again);
    connection.sends.push_back(again);
  }
}

// Receiving.

/// The oldest part that a message matches; null: it waits.
Part* match(Connection& connection, uint32_t tag, Request*& owner) {
  for (Request* request : connection.receives) {
    for (Part& part : request->parts) {
      if (part.taken || (part.tag != tag && !connection.context->has(Fault::kIgnoresTags))) continue;
      owner = request;
      return &part;
    }
  }
  return nullptr;
}

/// Up to `bytes` bytes; 0: none are there, or the connection has ended.
uint64_t pull(Connection& connection, uint8_t* to, uint64_t bytes) {
  const ssize_t got = ::recv(connection.fd, to, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<uint64_t>(got);
  if (got == 0 && bytes > 0) connection.end_seen = true;
  if (got < 0 && errno != EAGAIN && errno != EINTR) connection.end_seen = true;
  return 0;
}

void end_message(Connection& connection) {
  Part& part = *connection.into;
  part.got = connection.frame.bytes;
  part.full = true;
  if (connection.context->has(Fault::kWritesBeyond) && part.got > 32) part.address[part.got] = 0;
  Request& request = *connection.into_request;
  if (std::all_of(request.parts.begin(), request.parts.end(), [](const Part& one) { return one.full; })) {
    request.is_done = true;
    std::erase(connection.receives, &request);
  }
  connection.into = nullptr;
  connection.frame_bytes = 0;
  connection.arrived = 0;
}

/// One piece of the stream. False: nothing moved.
bool pull_piece(Connection& connection) {
  if (connection.frame_bytes < sizeof(Frame)) {
    if (connection.receives.empty() && connection.frame_bytes == 0) return false;
    auto* const frame = reinterpret_cast<uint8_t*>(&connection.frame);
    const uint64_t got = pull(connection, frame + connection.frame_bytes, sizeof(Frame) - connection.frame_bytes);
    connection.frame_bytes += got;
    return got > 0;
  }
  if (connection.into == nullptr) {
    connection.into = match(connection, connection.frame.tag, connection.into_request);
    if (connection.into == nullptr) return false;
    connection.into->taken = true;
    connection.into_request->too_long = connection.frame.bytes > connection.into->room;
  }
  if (connection.into_request->too_long && !connection.context->has(Fault::kIgnoresRoom)) return false;
  const uint64_t bytes = std::min(connection.frame.bytes, connection.into->room);
  if (connection.arrived == bytes) {
    end_message(connection);
    return true;
  }
  const uint64_t got =
      pull(connection, connection.into->address + connection.arrived,
           std::min<uint64_t>(bytes - connection.arrived, 64 * 1024));
  connection.arrived += got;
  return got > 0;
}

void pull_all(Connection& connection) {
  if (connection.context->has(Fault::kEndBeforeData)) {
    pollfd ready{connection.fd, POLLRDHUP, 0};
    if (poll(&ready, 1, 0) > 0) return connection.is_broken = true, void();
  }
  for (int pieces = 0; pieces < 16 && pull_piece(connection); ++pieces) {
  }
  if (connection.end_seen && connection.into == nullptr) connection.is_broken = true;
}

void progress(Connection& connection) {
  if (connection.is_broken) return;
  push_all(connection);
  pull_all(connection);
}

// The entries.

int32_t create(void* self, uint64_t /*communicator*/, void** out) {
  auto made = std::make_unique<Context>();
  made->network = static_cast<Network*>(self);
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
  close(context->events);
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
  out->name = sdk::borrow("unix0");
  out->memory = context.has(Fault::kNoHostMemory) ? 0 : TUTTI_MEMORY_HOST;
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
  if (bind(made->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(made->fd, 128) != 0) {
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

int32_t register_memory(void* raw, void* address, uint64_t /*bytes*/, uint32_t memory, void** registration) {
  if (memory != TUTTI_MEMORY_HOST) {
    return static_cast<Connection*>(raw)->context->fail(TUTTI_UNSUPPORTED, "only memory of the host can be registered");
  }
  *registration = new uint8_t*(static_cast<uint8_t*>(address));
  return TUTTI_OK;
}

int32_t deregister_memory(void* /*connection*/, void* registration) {
  delete static_cast<uint8_t**>(registration);
  return TUTTI_OK;
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
  if (context.has(Fault::kIgnoresOffset) && registration != nullptr) address = *static_cast<uint8_t**>(registration);
  auto* const made = new Request();
  made->connection = &connection;
  made->is_send = true;
  made->frame = {kMagic, tag, bytes};
  made->parts.push_back({static_cast<uint8_t*>(const_cast<void*>(address)), bytes, tag, 0, false, false});
  connection.all.insert(made);
  queue(connection, made);
  push_all(connection);
  *request = made;
  return TUTTI_OK;
}

int32_t recv(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
             void* const* /*registrations*/, void** request) {
  auto& connection = *static_cast<Connection*>(raw);
  const Context& context = *connection.context;
  if (connection.is_broken) return context.has(Fault::kSilentEnd) ? TUTTI_AGAIN : broken(connection);
  if (context.has(Fault::kNoGroups) && count > 1) return context.fail(TUTTI_UNSUPPORTED, "one message per receive");
  if (is_full(connection)) return TUTTI_AGAIN;
  auto* const made = new Request();
  made->connection = &connection;
  for (uint32_t i = 0; i < count; ++i) {
    auto at = reinterpret_cast<uintptr_t>(addresses[i]);
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
  close(listener->fd);
  unlink(listener->path.c_str());
  delete listener;
}

int32_t event_fd(void* raw, int32_t* fd) {
  const auto& context = *static_cast<Context*>(raw);
  *fd = context.has(Fault::kClosedEventFd) ? 999 : context.events;
  return TUTTI_OK;
}

/// Level-triggered: each socket is watched for what its requests wait for.
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

const tutti_network_ops kOps = {sizeof(tutti_network_ops), 0,       create,        destroy,  device_count,
                                properties,                listen,  connect,       accept,   cancel,
                                register_memory,           nullptr, deregister_memory, send, recv,
                                nullptr,                   test,    close_connection,  close_listener, event_fd,
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
  *self = network.release();
  return TUTTI_OK;
}

void close_plugin(void* self) {
  delete static_cast<Network*>(self);
}

}  // namespace
}  // namespace tutti::mock

extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  using namespace tutti;
  static const tutti_config_key kFault =
      sdk::setting(TUTTI_CONFIG_TEXT, "fault", "none", "The fault that the mock commits: a name of faults.h.");
  *out = {};
  out->struct_size = sizeof *out;
  out->kind = TUTTI_KIND_NETWORK;
  out->abi_major = TUTTI_ABI_MAJOR;
  out->abi_minor = TUTTI_ABI_MINOR;
  out->name = sdk::borrow("mock");
  out->version = sdk::borrow("1.0");
  out->description = sdk::borrow("a network over Unix sockets, with faults");
  out->capabilities = TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_EVENT_FD;
  out->config_keys = &kFault;
  out->config_key_count = 1;
  out->open = mock::open;
  out->close = mock::close_plugin;
  out->ops = &mock::kOps;
  return TUTTI_OK;
}
