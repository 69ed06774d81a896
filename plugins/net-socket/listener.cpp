// SPDX-License-Identifier: Apache-2.0
#include "listener.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net_socket {
namespace {

constexpr uint32_t kMaxStreams = 16;

template <size_t N>
Status fill_random(std::array<uint8_t, N>& bytes) {
  if (getrandom(bytes.data(), N, 0) == static_cast<ssize_t>(N)) return {};
  return {Code::kSystem, "getrandom failed; check the system's random source"};
}

/// Equal in a time that does not depend on where they differ.
bool same_secret(const Secret& a, const Secret& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace

Status Shared::watch(const base::Fd& socket) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.get(), &event) == 0) return {};
  return base::system_error("cannot watch a socket (epoll_ctl)");
}

Status Shared::prepare(const base::Fd& socket) const {
  base::set_connection_options(socket, silence);
  if (buffer_bytes > 0) {
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  }
  return watch(socket);
}

Result<std::unique_ptr<Listener>> Listener::open(const base::SocketAddress& address, const Shared& shared) {
  std::unique_ptr<Listener> listener(new Listener(shared));
  TUTTI_ASSIGN(listener->socket_, base::listen_on(address));
  const base::SocketAddress bound = base::local_address(listener->socket_);
  Address& out = listener->address_;
  out.family = static_cast<uint16_t>(bound.family());
  out.port = bound.port();
  out.streams = shared.streams;
  const auto ip = bound.ip();
  std::copy(ip.begin(), ip.end(), out.ip.begin());
  TUTTI_TRY(fill_random(out.secret));
  TUTTI_TRY(shared.watch(listener->socket_));
  return listener;
}

Result<std::unique_ptr<Connection>> Listener::accept() {
  TUTTI_TRY(greet());
  read_hellos();
  const base::Time now = base::Clock::now();
  groups_.remove_if([&](const Group& group) { return group.missing > 0 && now > group.deadline; });
  const auto whole =
      std::find_if(groups_.begin(), groups_.end(), [](const Group& group) { return group.missing == 0; });
  if (whole == groups_.end()) return std::unique_ptr<Connection>();
  const std::string peer = base::remote_address(whole->streams.front()).to_string();
  auto connection = std::make_unique<Connection>(std::move(whole->streams),
                                                 Connection::Options{false, shared_.stripe_bytes, peer, shared_.host});
  groups_.erase(whole);
  return connection;
}

Status Listener::greet() {
  for (;;) {
    base::Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      // What a stranger's connection may end in is no failure of the listener.
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? Status() : base::system_error("cannot accept connections");
    }
    TUTTI_TRY(shared_.prepare(socket));
    guests_.push_back({std::move(socket), base::time_in(kHelloLimit), {}, 0});
  }
}

void Listener::read_hellos() {
  const base::Time now = base::Clock::now();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    auto* bytes = reinterpret_cast<uint8_t*>(&guest->hello);
    const ssize_t got = ::recv(guest->socket.get(), bytes + guest->read, sizeof(Hello) - guest->read, MSG_DONTWAIT);
    if (got > 0) guest->read += static_cast<size_t>(got);
    const bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    if (guest->read == sizeof(Hello)) introduce(*guest);
    guest = guest->read == sizeof(Hello) || gone || now > guest->deadline ? guests_.erase(guest) : std::next(guest);
  }
}

/// Puts a stream to its siblings, if it is a friend's; else it is dropped with its guest.
void Listener::introduce(Guest& guest) {
  const Hello& hello = guest.hello;
  if (hello.magic != kMagic || !same_secret(hello.secret, address_.secret)) return;
  if (hello.streams != address_.streams || hello.stream >= hello.streams) return;
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.connection == hello.connection; });
  if (group == groups_.end()) {
    group = groups_.insert(
        group, {hello.connection, std::vector<base::Fd>(hello.streams), hello.streams, base::time_in(kHelloLimit)});
  }
  base::Fd& place = group->streams[hello.stream];
  if (place.valid()) return;
  place = std::move(guest.socket);
  --group->missing;
}

Result<std::unique_ptr<Connecting>> Connecting::start(const Address& address, const Shared& shared) {
  if ((address.family != AF_INET && address.family != AF_INET6) || address.streams == 0 ||
      address.streams > kMaxStreams) {
    return Status(Code::kInvalidArgument,
                  "the handle is not one of this plugin; do all ranks use the same network plugin?");
  }
  std::unique_ptr<Connecting> connecting(new Connecting(address, shared));
  connecting->to_ = base::SocketAddress(std::span(address.ip).first(address.family == AF_INET ? 4 : 16), address.port);
  connecting->hello_.secret = address.secret;
  connecting->hello_.streams = address.streams;
  TUTTI_TRY(fill_random(connecting->hello_.connection));
  for (uint32_t i = 0; i < address.streams; ++i) {
    TUTTI_ASSIGN(base::Fd socket, connecting->open_stream());
    connecting->streams_.push_back({std::move(socket), false, 0});
  }
  return connecting;
}

Result<base::Fd> Connecting::open_stream() const {
  base::Fd stream(socket(to_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!stream.valid()) return base::system_error("cannot make a socket; check the limit of open files");
  TUTTI_TRY(shared_.prepare(stream));
  if (::connect(stream.get(), to_.data(), to_.size()) != 0 && errno != EINPROGRESS) {
    return base::system_error(
        fmt::format("cannot connect to {}; is it reachable from this interface", to_.to_string()));
  }
  return stream;
}

Result<std::unique_ptr<Connection>> Connecting::advance() {
  bool all = true;
  for (size_t i = 0; i < streams_.size(); ++i) {
    TUTTI_ASSIGN(const bool ready, advance_stream(i));
    all = all && ready;
  }
  if (!all) return std::unique_ptr<Connection>();
  std::vector<base::Fd> sockets;
  for (Stream& stream : streams_) sockets.push_back(std::move(stream.socket));
  return std::make_unique<Connection>(std::move(sockets),
                                      Connection::Options{true, shared_.stripe_bytes, to_.to_string(), shared_.host});
}

Result<bool> Connecting::advance_stream(size_t index) {
  Stream& stream = streams_[index];
  if (stream.sent == sizeof(Hello)) return true;
  if (!stream.connected) {
    tcp_info info{};
    socklen_t length = sizeof info;
    int error = 0;
    socklen_t error_length = sizeof error;
    getsockopt(stream.socket.get(), SOL_SOCKET, SO_ERROR, &error, &error_length);
    if (error != 0) {
      return Status(Code::kRemote, fmt::format("cannot connect to {}: {}; check the interface setting and firewalls",
                                               to_.to_string(), base::errno_text(error)));
    }
    getsockopt(stream.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
    if (info.tcpi_state != TCP_ESTABLISHED) return false;
    stream.connected = true;
  }
  Hello hello = hello_;
  hello.stream = static_cast<uint32_t>(index);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&hello);
  const ssize_t sent =
      ::send(stream.socket.get(), bytes + stream.sent, sizeof hello - stream.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) stream.sent += static_cast<size_t>(sent);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    return Status(Code::kRemote,
                  fmt::format("{} refused the connection: {}", to_.to_string(), base::errno_text(errno)));
  }
  return stream.sent == sizeof hello;
}

}  // namespace tutti::net_socket
