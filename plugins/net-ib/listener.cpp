// SPDX-License-Identifier: Apache-2.0
#include "listener.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "handshake.h"
#include "receiver.h"
#include "tutti/sdk/descriptor_limit.h"

namespace tutti::net_ib {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostGuests = 128;
constexpr int kMostAtOnce = 32;  // guests of one visit
constexpr int kShare = 16;       // visits take at most one part in so many of the time
constexpr milliseconds kReserve{50};
constexpr milliseconds kLookInterval{1};  // while the thread is too busy to ask for events
constexpr milliseconds kPause{100};
constexpr std::chrono::seconds kLimit{10};

/// Errors of accept4 that concern one guest, or that the network may mend.
bool is_passing(int error) {
  return error == EINTR || error == ECONNABORTED || error == EPROTO || error == EPERM || error == ENETDOWN ||
         error == ENETUNREACH || error == EHOSTDOWN || error == EHOSTUNREACH || error == ENOPROTOOPT ||
         error == ENONET || error == EOPNOTSUPP;
}

bool lacks_room(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool write_whole(const Fd& socket, const void* from, size_t bytes) {  // a new socket's buffer has room
  return ::send(socket.get(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const Shared& shared, std::vector<Port> ports,
                                                 tutti_net_handle& handle) {
  std::unique_ptr<Listener> listener(new Listener(shared, std::move(ports)));
  const Interface& exchange = listener->ports_.front().exchange;
  Handle& own = listener->handle_;
  own.ip = exchange.ip;
  TUTTI_ASSIGN(listener->socket_, listen_at(exchange, own.port));
  TUTTI_ASSIGN(own.secret, sdk::make_nonce());
  listener->reserve_ = kReserve;
  listener->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!listener->epoll_.valid() ||
      epoll_ctl(listener->epoll_.get(), EPOLL_CTL_ADD, listener->socket_.get(), &event) != 0) {
    return system_error("cannot watch a listener (epoll)");
  }
  TUTTI_TRY(shared.events->watch(listener->epoll_.get(), listener->stir_, true));
  handle = {};
  std::memcpy(handle.bytes, &own, sizeof own);
  return listener;
}

/// If a forked child has a copy of the socket, close() leaves the socket in the epoll.
Listener::Guest::~Guest() {
  if (socket.valid()) epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
}

Result<std::unique_ptr<sdk::Connection>> Listener::accept() {
  const Clock::time_point now = Clock::now();
  if (now >= rest_until_ && (stir_.take() || now >= next_look_)) TUTTI_TRY(visit(now));
  if (ready_.empty()) return std::unique_ptr<sdk::Connection>();
  std::unique_ptr<Link> link = std::move(ready_.back());
  ready_.pop_back();
  return std::unique_ptr<sdk::Connection>(std::make_unique<Receiver>(std::move(link)));
}

Status Listener::visit(Clock::time_point now) {
  std::array<epoll_event, kMostAtOnce> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    auto* const guest = static_cast<Guest*>(events[static_cast<size_t>(i)].data.ptr);
    if (guest == nullptr || hear(*guest)) continue;
    for (std::list<Guest>* const list : {&guests_, &friends_}) {
      list->remove_if([&](const Guest& other) { return &other == guest; });
    }
  }
  const Status greeted = greet();
  for (std::list<Guest>* const list : {&guests_, &friends_}) {
    list->remove_if([&](const Guest& guest) { return now > guest.deadline; });
  }
  ask_for_events();
  const Clock::time_point end = Clock::now();
  reserve_ = std::min<Clock::duration>(kReserve, reserve_ + (now - last_visit_) / kShare) - (end - now);
  if (reserve_ < Clock::duration::zero()) rest_until_ = std::max(rest_until_, end - reserve_ * kShare);
  last_visit_ = now;
  next_look_ = end + kLookInterval;
  return greeted;
}

/// Events of the epoll reach the context once for each visit, so that strangers do not keep its thread awake.
void Listener::ask_for_events() {
  const Status asked = shared_.events->watch(epoll_.get(), stir_, true);
  if (!asked.ok()) shared_.host.log(TUTTI_LOG_ERROR, asked.text());
}

Status Listener::greet() {
  for (int taken = 0; taken < kMostAtOnce; ++taken) {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      add_guest(std::move(socket));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    if (lacks_room(errno)) {
      if (!make_room()) return {};
    } else if (!is_passing(errno)) {
      return system_error("cannot accept connections of the exchange");
    }
  }
  return {};
}

void Listener::add_guest(Fd socket) {
  const auto nonce = sdk::make_nonce();
  if (!nonce.ok()) return;
  if (guests_.size() >= kMostGuests) guests_.pop_front();
  Guest& guest = guests_.emplace_back(epoll_);
  guest.socket = std::move(socket);
  guest.deadline = Clock::now() + kLimit;
  guest.nonce = *nonce;
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = &guest}};
  Challenge challenge;
  challenge.nonce = guest.nonce;
  const bool watched = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, guest.socket.get(), &event) == 0;
  if (!watched || !write_whole(guest.socket, &challenge, sizeof challenge)) guests_.pop_back();
}

/// For a process that is out of descriptors: raises the limit to the hard limit, then drops the oldest guest, then
/// pauses.
bool Listener::make_room() {
  if (sdk::raise_descriptor_limit()) return true;
  if (!guests_.empty()) {
    guests_.pop_front();
    return true;
  }
  rest_until_ = Clock::now() + kPause;
  return false;
}

/// False: the guest has gone. `whole`: all bytes of the step are there.
bool Listener::read(Guest& guest, void* to, size_t bytes, bool& whole) {
  const ssize_t got =
      ::recv(guest.socket.get(), static_cast<uint8_t*>(to) + guest.read, bytes - guest.read, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got == 0) return false;
  guest.read += static_cast<size_t>(got);
  whole = guest.read == bytes;
  if (whole) guest.read = 0;
  return true;
}

bool Listener::hear(Guest& guest) {
  bool whole = false;
  if (guest.step == Step::kHello) {
    if (!read(guest, &guest.hello, sizeof(Hello), whole)) return false;
    return !whole || introduce(guest);
  }
  uint8_t ready = 0;
  if (guest.step == Step::kEnd || !read(guest, &ready, sizeof ready, whole)) return false;
  if (!whole) return true;
  if (!guest.link->keep_rails(ready).ok()) return false;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guest.socket.get(), nullptr);
  guest.link->keep(std::move(guest.socket));
  ready_.push_back(std::move(guest.link));
  return false;  // it is a guest no longer
}

/// False: the guest does not know the secret.
bool Listener::introduce(Guest& guest) {
  const auto known = is_friend(handle_, guest.nonce, guest.hello);
  if (!known.ok()) shared_.host.log(TUTTI_LOG_ERROR, known.status().text());
  if (!known.ok() || !*known) return false;
  const auto place = std::find_if(guests_.begin(), guests_.end(), [&](const Guest& one) { return &one == &guest; });
  friends_.splice(friends_.end(), guests_, place);
  return welcome(guest);
}

/// Answers a friend with this side's queue pairs, or with the reason why there are none.
bool Listener::welcome(Guest& guest) {
  Welcome welcome;
  auto link = Link::create(shared_, ports_);
  const Status made = link.ok() ? (*link)->connect(guest.hello.rails, false) : link.status();
  if (made.ok()) {
    welcome.rails = (*link)->endpoints();
    guest.link = *std::move(link);
  } else {
    shared_.host.log(TUTTI_LOG_WARN, made.text());
    std::copy_n(made.text().begin(), std::min(made.text().size(), welcome.refusal.size() - 1), welcome.refusal.begin());
  }
  guest.step = made.ok() ? Step::kReady : Step::kEnd;
  guest.deadline = Clock::now() + kLimit;
  const auto proof = sdk::prove(handle_.secret, sdk::Side::kAcceptor, guest.nonce, guest.hello.nonce,
                                proved(guest.hello.rails, welcome));
  if (!proof.ok()) return false;
  welcome.proof = *proof;
  return write_whole(guest.socket, &welcome, sizeof welcome);
}

}  // namespace tutti::net_ib
