// SPDX-License-Identifier: Apache-2.0
#include "listener.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tutti/sdk/descriptor_limit.h"

namespace tutti::net_ucx {
namespace {

bool lacks_room(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Result<std::unique_ptr<sdk::Listener>> Listener::open(Shared& shared, tutti_net_handle& handle) {
  std::unique_ptr<Listener> listener(new Listener(shared));
  const std::lock_guard lock(shared.lock);  // released first: the listener takes it when it ends
  Fd& socket = listener->socket_;
  socket = Fd(::socket(shared.interface_address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::bind(socket.get(), shared.interface_address.data(), shared.interface_address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return system_error("cannot listen at " + shared.interface_address.text(), errno);
  }
  TUTTI_TRY(shared.watch(socket, listener->stir_));
  Address& address = listener->address_;
  const SocketAddress bound = local_address(socket);
  address.family = static_cast<uint16_t>(bound.family());
  address.port = bound.port();
  address.ip = bound.ip();
  TUTTI_ASSIGN(address.secret, sdk::make_nonce());
  const auto worker = shared.ucx->address();
  if (worker.size() > kMostAddressBytes) return Status(Code::kUnsupported, "the address of UCX's worker is too long");
  listener->worker_.assign(worker.begin(), worker.end());
  handle = {};
  std::memcpy(handle.bytes, &address, sizeof address);
  return std::unique_ptr<sdk::Listener>(std::move(listener));
}

Listener::~Listener() {
  friends_.clear();  // they take the lock
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  guests_.clear();
  shared_.forget(socket_);
  socket_ = Fd();
}

Result<std::unique_ptr<sdk::Connection>> Listener::accept() {
  auto connection = visit();
  refused_.clear();
  return connection;
}

Result<std::unique_ptr<sdk::Connection>> Listener::visit() {
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  shared_.advance(round_);
  const auto now = Clock::now();
  if (now < next_visit_) return std::unique_ptr<sdk::Connection>();
  next_visit_ = now + kVisitInterval;
  if (stir_.stirred) TUTTI_TRY(greet(now));
  hear_guests(now);
  auto connection = try_friends();
  if (connection != nullptr) next_visit_ = now;  // more friends may wait
  return connection;
}

/// Takes some of the lines that wait; the rest at the next visit.
Status Listener::greet(Clock::time_point now) {
  for (int taken = 0; taken < kMostAtOnce; ++taken) {
    Fd line(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (line.valid()) {
      if (!add_guest(std::move(line), now) && !make_room(now)) return {};
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      stir_.stirred = false;
      return {};
    }
    if (errno == EBADF || errno == EINVAL || errno == EFAULT || errno == ENOTSOCK)
      return system_error("cannot accept connections", errno);
    // The other failures concern one guest, or pass.
    if (lacks_room(errno) && !make_room(now)) return {};
  }
  return {};
}

/// False: out of descriptors or memory.
bool Listener::add_guest(Fd line, Clock::time_point now) {
  auto nonce = sdk::make_nonce();
  if (!nonce.ok()) return false;
  if (guests_.size() >= kMostGuests) guests_.pop_front();
  Guest& guest = guests_.emplace_back(shared_);
  guest.line = std::move(line);
  guest.deadline = now + kHelloLimit;
  guest.challenge = {.nonce = *nonce,
                     .ucx_version = ucx_version(),
                     .id = shared_.next_id(),
                     .address_bytes = static_cast<uint32_t>(worker_.size()),
                     .namespace_id = shared_.namespace_id};
  if (shared_.watch(guest.line, guest.stir).ok()) return true;
  guests_.pop_back();
  return false;
}

/// For a process that is out of descriptors: raises the limit to the hard limit, then drops the oldest guest, then
/// pauses.
bool Listener::make_room(Clock::time_point now) {
  if (sdk::raise_descriptor_limit()) return true;
  if (!guests_.empty()) {
    guests_.pop_front();
    return true;
  }
  next_visit_ = now + kPause;
  return false;
}

void Listener::hear_guests(Clock::time_point now) {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const Heard heard = guest->stir.stirred ? hear(*guest) : Heard::kNotYet;
    if (heard == Heard::kNotYet && now <= guest->deadline) {
      ++guest;
      continue;
    }
    Fd line;
    if (heard == Heard::kFriend) line = std::move(guest->line);
    const uint32_t id = guest->challenge.id;
    guest = guests_.erase(guest);
    if (heard != Heard::kFriend) continue;
    set_options(line, shared_.grace);
    auto connection = std::make_unique<Connection>(shared_, std::move(line), id, false);
    if (connection->watch_line().ok()) {
      friends_.push_back({std::move(connection), now + trial_limit(shared_.grace)});
    } else {
      refused_.push_back(std::move(connection));  // the other side finds it closed, and connects again
    }
  }
}

/// A friend whose trial fails is no failure of this side: the connecting side tells it.
std::unique_ptr<sdk::Connection> Listener::try_friends() {
  for (auto one = friends_.begin(); one != friends_.end();) {
    const auto tried = one->connection->await_trial(one->deadline);
    if (tried.ok() && !*tried) {
      ++one;
      continue;
    }
    std::unique_ptr<Connection> connection = std::move(one->connection);
    one = friends_.erase(one);
    if (tried.ok()) return connection;
    refused_.push_back(std::move(connection));
    shared_.host.log(TUTTI_LOG_INFO, std::string(tried.status().text()));
  }
  return nullptr;
}

Listener::Heard Listener::hear(Guest& guest) {
  const auto head = std::as_bytes(std::span(&guest.challenge, 1));
  std::vector<std::byte> greeting(head.begin(), head.end());
  greeting.insert(greeting.end(), worker_.begin(), worker_.end());
  const auto said = write_some(guest.line, greeting, guest.said);
  if (!said.ok()) return Heard::kStranger;
  if (!*said) {
    guest.stir.stirred = false;
    return Heard::kNotYet;
  }
  const size_t before = guest.heard;
  const auto heard = read_some(guest.line, std::as_writable_bytes(std::span(&guest.hello, 1)), guest.heard);
  if (!heard.ok()) return Heard::kStranger;
  if (*heard) return judge(guest);
  guest.stir.stirred = guest.heard != before;  // there may be more
  return Heard::kNotYet;
}

/// Proves this side to a friend.
Listener::Heard Listener::judge(Guest& guest) {
  if (guest.hello.magic != kMagic) return Heard::kStranger;
  const auto bytes = proved(guest.challenge, worker_);
  const auto prove = [&](sdk::Side side) {
    return sdk::prove(address_.secret, side, guest.challenge.nonce, guest.hello.nonce, bytes);
  };
  const auto theirs = prove(sdk::Side::kConnector);
  const auto own = prove(sdk::Side::kAcceptor);
  if (!theirs.ok() || !own.ok()) {
    shared_.host.log(TUTTI_LOG_ERROR, theirs.ok() ? own.status().text() : theirs.status().text());
    return Heard::kStranger;
  }
  if (!sdk::same(*theirs, guest.hello.proof)) return Heard::kStranger;
  size_t moved = 0;  // a line that has carried so little has room
  const auto sent = write_some(guest.line, std::as_bytes(std::span(*own)), moved);
  return sent.ok() && *sent ? Heard::kFriend : Heard::kStranger;
}

}  // namespace tutti::net_ucx
