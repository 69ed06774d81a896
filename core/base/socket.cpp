// SPDX-License-Identifier: Apache-2.0
#include "base/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "base/descriptors.h"

namespace tutti::base {
namespace {

Status bad_address(std::string_view text, std::string_view why) {
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is no address: {}; write 10.0.0.1:4000, [fd00::1]:4000 or name:4000", text, why));
}

/// A question to the system's resolver, which answers it in a thread of the C library.
struct Lookup {
  explicit Lookup(std::string name) : host(std::move(name)) {
    hints.ai_socktype = SOCK_STREAM;
    request.ar_name = host.c_str();
    request.ar_request = &hints;
  }
  ~Lookup() {
    if (request.ar_result != nullptr) ::freeaddrinfo(request.ar_result);
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  std::string host;
  addrinfo hints = {};
  gaicb request = {};
};

/// Whether the answer has come before the deadline.
bool wait_for(const Lookup& lookup, Time deadline) {
  const gaicb* const waited = &lookup.request;
  for (int error = EAI_INTR; error == EAI_INTR;) {
    const auto left = left_until(deadline).count();
    const timespec limit = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1'000'000};
    error = ::gai_suspend(&waited, 1, &limit);
  }
  return ::gai_error(const_cast<gaicb*>(waited)) != EAI_INPROGRESS;
}

Result<SocketAddress> resolve(const std::string& host, Time deadline) {
  auto lookup = std::make_unique<Lookup>(host);
  gaicb* const request = &lookup->request;
  int error = ::getaddrinfo_a(GAI_NOWAIT, std::array{request}.data(), 1, nullptr);
  if (error == 0 && !wait_for(*lookup, deadline)) {
    // A question that has reached the resolver cannot be taken back: the C library writes the answer into it.
    if (::gai_cancel(request) != EAI_CANCELED) static_cast<void>(lookup.release());
    return Status(Code::kTimeout, fmt::format("host '{}': the resolver of this host gave no answer in time; check the "
                                              "servers in /etc/resolv.conf, or write the host's address in place of "
                                              "its name",
                                              host));
  }
  if (error == 0) error = ::gai_error(request);
  if (error != 0) return Status(Code::kNotFound, fmt::format("host '{}': {}", host, ::gai_strerror(error)));
  return SocketAddress(request->ar_result->ai_addr);
}

void set_option(const Fd& socket, int level, int option, int value) {
  // Failure is ignored: every option set here only tunes.
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

/// Waits until the connection stands; 0, or the errno it failed with.
int finish_connect(const Fd& socket, Time deadline) {
  pollfd poll = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  while (true) {
    const int ready = ::poll(&poll, 1, static_cast<int>(left_until(deadline).count()));
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return errno;
    if (ready == 0 && Clock::now() >= deadline) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

/// A connection to a free local port can meet itself (simultaneous open).
bool met_itself(const Fd& socket) {
  return local_address(socket).to_string() == remote_address(socket).to_string();
}

int try_connect(const Fd& socket, const SocketAddress& address, Time deadline) {
  int error = ::connect(socket.get(), address.data(), address.size()) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) error = finish_connect(socket, deadline);
  return error == 0 && met_itself(socket) ? ECONNREFUSED : error;
}

/// The other side may come up, or is overrun for now, or its link is down for now.
bool worth_retrying(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == ETIMEDOUT || error == EAGAIN ||
         error == EADDRNOTAVAIL || error == EHOSTUNREACH;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) std::memcpy(&storage_.v4, address, sizeof storage_.v4);
  if (address->sa_family == AF_INET6) std::memcpy(&storage_.v6, address, sizeof storage_.v6);
}

SocketAddress::SocketAddress(std::span<const uint8_t> ip, uint16_t port) {
  if (ip.size() == sizeof(in_addr)) {
    storage_.v4.sin_family = AF_INET;
    std::memcpy(&storage_.v4.sin_addr, ip.data(), ip.size());
  } else if (ip.size() == sizeof(in6_addr)) {
    storage_.v6.sin6_family = AF_INET6;
    std::memcpy(&storage_.v6.sin6_addr, ip.data(), ip.size());
  }
  set_port(port);
}

Result<SocketAddress> SocketAddress::parse(std::string_view text, Time deadline) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "it has no port");
  const std::string_view port_text = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size())
    return bad_address(text, "the port is not a number of 0..65535");

  std::string host(text.substr(0, colon));
  if (host.empty()) return bad_address(text, "it has no host");
  if (host.front() == '[') {
    in6_addr v6;
    if (host.back() != ']' || ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) != 1)
      return bad_address(text, "the brackets hold no IPv6 address");
    return SocketAddress({v6.s6_addr, sizeof v6.s6_addr}, port);
  }
  if (host.find(':') != std::string::npos) return bad_address(text, "an IPv6 address goes in brackets");
  in_addr v4;
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return SocketAddress({reinterpret_cast<const uint8_t*>(&v4), sizeof v4}, port);
  TUTTI_ASSIGN(SocketAddress address, resolve(host, deadline));
  address.set_port(port);
  return address;
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? storage_.v4.sin_port : storage_.v6.sin6_port);
}

void SocketAddress::set_port(uint16_t port) {
  (family() == AF_INET ? storage_.v4.sin_port : storage_.v6.sin6_port) = htons(port);
}

std::span<const uint8_t> SocketAddress::ip() const {
  if (family() == AF_INET) return {reinterpret_cast<const uint8_t*>(&storage_.v4.sin_addr), sizeof(in_addr)};
  if (family() == AF_INET6) return {reinterpret_cast<const uint8_t*>(&storage_.v6.sin6_addr), sizeof(in6_addr)};
  return {};
}

bool SocketAddress::is_link_local() const {
  const auto bytes = ip();
  if (family() == AF_INET) return bytes[0] == 169 && bytes[1] == 254;
  return family() == AF_INET6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return ip()[0] == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
}

std::string SocketAddress::ip_text() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family(), ip().data(), text, sizeof text);
  return text;
}

std::string SocketAddress::to_string() const {
  return fmt::format(fmt::runtime(family() == AF_INET6 ? "[{}]:{}" : "{}:{}"), ip_text(), port());
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET ? sizeof storage_.v4 : sizeof storage_.v6;
}

Result<Fd> listen_on(const SocketAddress& address) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return descriptor_error("cannot make a socket");
  if (address.port() != 0) set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // restart while old connections linger
  if (::bind(socket.get(), address.data(), address.size()) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE)
      return Status(Code::kSystem, fmt::format("cannot listen on {}: port {} {}; choose another port, or end that "
                                               "process",
                                               address.to_string(), address.port(), kPortInUse));
    if (errno == EADDRNOTAVAIL)
      return Status(Code::kSystem, fmt::format("cannot listen on {}: no interface of this host has this address; use "
                                               "an address of this host, or start this process on the other host",
                                               address.to_string()));
    return system_error(fmt::format("cannot listen on {}", address.to_string()));
  }
  return socket;
}

SocketAddress local_address(const Fd& socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  return SocketAddress(reinterpret_cast<sockaddr*>(&storage));
}

SocketAddress remote_address(const Fd& socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  return SocketAddress(reinterpret_cast<sockaddr*>(&storage));
}

Result<Fd> connect_to(const SocketAddress& address, Time deadline) {
  constexpr Milliseconds kLongestPause(200);
  for (Milliseconds pause(5);; pause = std::min(2 * pause, kLongestPause)) {
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return descriptor_error("cannot make a socket");
    const int error = try_connect(socket, address, deadline);
    if (error == 0) return socket;
    if (!worth_retrying(error)) return system_error(fmt::format("cannot connect to {}", address.to_string()), error);
    if (Clock::now() >= deadline)
      return Status(Code::kTimeout, fmt::format("cannot connect to {}: {}", address.to_string(), errno_text(error)));
    ::poll(nullptr, 0, static_cast<int>(left_until(deadline, pause).count()));
  }
}

void set_connection_options(const Fd& socket, Milliseconds grace) {
  const int64_t grace_ms = std::clamp<int64_t>(grace.count(), 1, 24 * 3600 * 1000);
  const auto limit_ms = static_cast<int>(silence_limit(Milliseconds(grace_ms)).count());
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(std::clamp<int64_t>(grace_ms / 2000, 1, 30)));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);  // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 127);  // beyond the user time-out, which decides
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, limit_ms);
}

}  // namespace tutti::base
