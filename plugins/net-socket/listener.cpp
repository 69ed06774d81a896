// SPDX-License-Identifier: Apache-2.0
#include "listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "rail_receiver.h"
#include "tutti/sdk/descriptor_limit.h"

namespace tutti::net_socket {
namespace {

constexpr int kMostAtOnce = 32;  // guests of one visit
constexpr int kShare = 16;       // visits take at most one part in so many of the time
constexpr Milliseconds kReserve{20};
constexpr Milliseconds kLookInterval{1};  // while the thread is too busy to ask for events
constexpr Milliseconds kPause{100};
constexpr Milliseconds kMostPause{3000};  // the longest time between two visits of one lack of descriptors

/// Errors of accept4 that concern one guest, or that the network may mend.
bool is_passing(int error) {
  return error == EINTR || error == ECONNABORTED || error == EPROTO || error == EPERM || error == ENETDOWN ||
         error == ENETUNREACH || error == EHOSTDOWN || error == EHOSTUNREACH || error == ENOPROTOOPT ||
         error == ENONET || error == EOPNOTSUPP;
}

bool lacks_room(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/// Linux makes a descriptor before it looks for a connection. So accept4 may lack a descriptor although no connection
/// waits.
bool has_waiting(const Fd& listening) {
  pollfd socket{listening.get(), POLLIN, 0};
  return ::poll(&socket, 1, 0) > 0;
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(std::span<const SocketAddress> addresses, const Shared& shared) {
  std::unique_ptr<Listener> listener(new Listener(shared));
  TUTTI_TRY(listener->set_sockets(addresses));
  Address& out = listener->address_;
  out.streams = shared.rails > 1 ? shared.rails : shared.streams;
  out.context = shared.id;
  out.tls = shared.tls != nullptr ? 1 : 0;
  TUTTI_ASSIGN(out.secret, sdk::make_nonce());
  listener->reserve_ = kReserve;
  listener->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!listener->epoll_.valid()) return system_error("cannot make an epoll descriptor");
  epoll_event stirred{.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = &listener->stirred_}};
  const bool watched = std::all_of(listener->sockets_.begin(), listener->sockets_.end(), [&](const Fd& socket) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    return epoll_ctl(listener->epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) == 0;
  });
  if (!watched || epoll_ctl(shared.events.get(), EPOLL_CTL_ADD, listener->epoll_.get(), &stirred) != 0) {
    return system_error("cannot watch a listener (epoll_ctl); check the limit fs.epoll.max_user_watches (sysctl)");
  }
  return listener;
}

/// Opens the sockets, and states their addresses.
Status Listener::set_sockets(std::span<const SocketAddress> addresses) {
  Address& out = address_;
  out.rails = static_cast<uint16_t>(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    TUTTI_ASSIGN(Fd socket, listen_on(addresses[i]));
    const SocketAddress bound = local_address(socket);
    sockets_.push_back(std::move(socket));
    const auto family = static_cast<uint16_t>(bound.family());
    (i == 0 ? out.family : out.further[i - 1].family) = family;
    (i == 0 ? out.port : out.further[i - 1].port) = bound.port();
    const auto ip = bound.ip();
    std::copy(ip.begin(), ip.end(), (i == 0 ? out.ip : out.further[i - 1].ip).begin());
  }
  return {};
}

Result<std::unique_ptr<sdk::Connection>> Listener::accept() {
  TUTTI_TRY(shared_.alarm->status());
  const Time now = Clock::now();
  if (now >= rest_until_ && (stirred_ != 0 || now >= next_look_)) TUTTI_TRY(visit(now));
  if (groups_.empty()) return std::unique_ptr<sdk::Connection>();
  return take_whole();
}

Status Listener::visit(Time now) {
  stirred_ = 0;
  hear_guests();
  Status greeted = greet();
  drop_late(now);
  ask_for_events();
  const Time end = Clock::now();
  reserve_ = std::min<Clock::duration>(kReserve, reserve_ + (now - last_visit_) / kShare) - (end - now);
  if (reserve_ < Clock::duration::zero()) rest_until_ = std::max(rest_until_, end - reserve_ * kShare);
  last_visit_ = now;
  next_look_ = end + kLookInterval;
  return greeted;
}

/// Events of the epoll reach the context once for each visit, so that strangers do not keep its thread awake.
void Listener::ask_for_events() {
  epoll_event stirred{.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = &stirred_}};
  epoll_ctl(shared_.events.get(), EPOLL_CTL_MOD, epoll_.get(), &stirred);
}

void Listener::hear_guests() {
  std::array<epoll_event, kMostAtOnce> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    auto* const guest = static_cast<Guest*>(events[static_cast<size_t>(i)].data.ptr);
    if (guest == nullptr || hear(*guest)) continue;
    drop(std::find_if(guests_.begin(), guests_.end(), [&](const Guest& other) { return &other == guest; }));
  }
}

/// A forked child may hold the socket open, so that closing it here leaves it in the epoll.
void Listener::drop(std::list<Guest>::iterator guest) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guest->socket.get(), nullptr);
  guests_.erase(guest);
}

Status Listener::greet() {
  for (const Fd& socket : sockets_) TUTTI_TRY(greet(socket));
  return {};
}

Status Listener::greet(const Fd& listening) {
  for (int taken = 0; taken < kMostAtOnce; ++taken) {
    Fd socket(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      lacks_since_.reset();
      const Status added = add_guest(std::move(socket));
      if (!added.ok() && !make_room(added)) return {};
      continue;
    }
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK) return {};
    if (is_passing(error)) continue;
    Status why = system_error("cannot accept connections", error);
    if (!lacks_room(error)) return why;
    if (!has_waiting(listening)) return {};
    if (!make_room(why)) return lacks_for_long() ? why : Status();
  }
  return {};
}

/// Not ok: out of memory, or of watches.
Status Listener::add_guest(Fd socket) {
  auto nonce = sdk::make_nonce();
  if (!nonce.ok()) return nonce.status();
  if (guests_.size() >= kMostGuests) drop(guests_.begin());
  Guest& guest = guests_.emplace_back(Guest{std::move(socket), time_in(kHelloLimit), *nonce, {}, 0});
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = &guest}};
  const Challenge challenge{kMagic, guest.nonce};
  Status watched;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, guest.socket.get(), &event) != 0)
    watched = system_error("cannot watch a socket (epoll_ctl)");
  const ssize_t sent =
      ::send(guest.socket.get(), &challenge, sizeof challenge, MSG_NOSIGNAL | MSG_DONTWAIT);  // a new buffer has room
  if (!watched.ok() || sent != static_cast<ssize_t>(sizeof challenge)) drop(std::prev(guests_.end()));
  return watched;
}

/// For a process that is out of descriptors: raises the limit to the hard limit, then drops the oldest guest, then
/// pauses. `why` is told once.
bool Listener::make_room(const Status& why) {
  if (sdk::raise_descriptor_limit()) return true;
  if (shared_.reported->is_first(std::string(why.text()))) shared_.host.log(TUTTI_LOG_WARN, why.text());
  if (!guests_.empty()) {
    drop(guests_.begin());
    return true;
  }
  rest_until_ = time_in(kPause);
  return false;
}

/// Whether a connection has waited for a descriptor as long as a silent connection is kept. A thread that was stopped
/// between two visits has not seen that the lack lasted.
bool Listener::lacks_for_long() {
  const Time now = Clock::now();
  if (!lacks_since_ || now - last_visit_ > kMostPause) lacks_since_ = now;
  return now - *lacks_since_ > shared_.limit();
}

void Listener::drop_late(Time now) {
  while (!guests_.empty() && now > guests_.front().deadline) drop(guests_.begin());
  groups_.remove_if([&](const Group& group) { return group.missing > 0 && now > group.deadline; });
}

bool Listener::hear(Guest& guest) {
  auto* bytes = reinterpret_cast<uint8_t*>(&guest.hello);
  const ssize_t got = ::recv(guest.socket.get(), bytes + guest.read, sizeof(Hello) - guest.read, MSG_DONTWAIT);
  if (got < 0) return would_block(errno);
  if (got == 0) return false;
  guest.read += static_cast<size_t>(got);
  if (guest.read < sizeof(Hello)) return true;
  introduce(guest);
  return false;
}

/// With rails, the hello names those that the connection has, and its own is one of them.
bool Listener::is_complete(const Hello& hello) const {
  if (hello.magic != kMagic || hello.streams != address_.streams || hello.stream >= hello.streams) return false;
  if (address_.rails == 1) return hello.used == 0;
  return hello.used < 1u << address_.rails && (hello.used >> hello.stream & 1) != 0;
}

/// Puts a stream to its siblings, if it is a friend's.
void Listener::introduce(Guest& guest) {
  const Hello& hello = guest.hello;
  if (!is_complete(hello)) return;
  const auto theirs = sdk::prove(address_.secret, sdk::Side::kConnector, guest.nonce, hello.nonce, hello.proved());
  const auto own = sdk::prove(address_.secret, sdk::Side::kAcceptor, guest.nonce, hello.nonce, hello.proved());
  const auto key = shared_.tls != nullptr ? stream_key(address_.secret, guest.nonce, hello) : StreamKey();
  if (!theirs.ok() || !own.ok() || !key.ok()) {
    shared_.host.log(TUTTI_LOG_ERROR, (!theirs.ok() ? theirs.status()
                                       : !own.ok()  ? own.status()
                                                    : key.status())
                                          .text());
    return;
  }
  if (!sdk::same(*theirs, hello.proof)) return;
  if (!join(guest, *own, *key)) shared_.host.log(TUTTI_LOG_WARN, "a rank connects a stream twice");
}

bool Listener::join(Guest& guest, const sdk::Proof& proof, const StreamKey& key) {
  const Hello& hello = guest.hello;
  auto group = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& g) { return g.partner.connection == hello.connection; });
  if (group == groups_.end()) {
    const auto count = address_.rails > 1 ? static_cast<uint32_t>(std::popcount(hello.used)) : hello.streams;
    group = groups_.insert(group, Group{{hello.context, hello.connection, hello.number},
                                        hello.used,
                                        std::vector<Stream>(hello.streams),
                                        count,
                                        time_in(std::max<Milliseconds>(kHelloLimit, shared_.limit()))});
  }
  Stream& place = group->streams[hello.stream];
  if (place.socket.valid() || group->used != hello.used) return false;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guest.socket.get(), nullptr);
  place = {std::move(guest.socket), proof, key};
  --group->missing;
  return true;
}

/// A connection of which all streams are there. The proof tells the other side so.
Result<std::unique_ptr<sdk::Connection>> Listener::take_whole() {
  const auto whole =
      std::find_if(groups_.begin(), groups_.end(), [](const Group& group) { return group.missing == 0; });
  if (whole == groups_.end()) return std::unique_ptr<sdk::Connection>();
  std::vector<DataSocket> sockets;
  std::vector<RailStream> rails;
  bool good = true;
  for (uint32_t i = 0; i < whole->streams.size(); ++i) {
    Stream& stream = whole->streams[i];
    if (!stream.socket.valid()) continue;  // a rail that is left out
    address_.rails > 1 ? shared_.prepare_sender(stream.socket) : shared_.prepare_receiver(stream.socket);
    const ssize_t sent =
        ::send(stream.socket.get(), stream.proof.data(), stream.proof.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    good = good && sent == static_cast<ssize_t>(stream.proof.size()) && shared_.watch(stream.socket).ok();
    TUTTI_ASSIGN(DataSocket socket,
                 shared_.make_stream(std::move(stream.socket), TlsStream::Role::kReceives, stream.key));
    if (address_.rails > 1) {
      rails.push_back({i, std::move(socket)});
    } else {
      sockets.push_back(std::move(socket));
    }
  }
  std::optional<Partner> partner;
  if (shared_.pairs_up) partner = whole->partner;
  groups_.erase(whole);
  if (!good) return std::unique_ptr<sdk::Connection>();  // the other side finds it closed, and connects again
  if (address_.rails > 1)
    return std::unique_ptr<sdk::Connection>(std::make_unique<RailReceiver>(std::move(rails), shared_));
  return std::unique_ptr<sdk::Connection>(std::make_unique<Connection>(std::move(sockets), false, shared_, partner));
}

}  // namespace tutti::net_socket
