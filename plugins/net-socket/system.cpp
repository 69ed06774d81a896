// SPDX-License-Identifier: Apache-2.0
#include "system.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>

#include <cstring>

#include "tutti/sdk/descriptor_limit.h"

namespace tutti::net_socket {

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
  return family() == AF_INET ? ip()[0] == 127 : family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
}

std::string SocketAddress::ip_text() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family(), ip().data(), text, sizeof text);
  return text;
}

std::string SocketAddress::to_string() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", ip_text(), port()) : fmt::format("{}:{}", ip_text(), port());
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET ? sizeof storage_.v4 : sizeof storage_.v6;
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

Result<Fd> make_socket(int family) {
  for (;;) {
    Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.valid()) return socket;
    const int error = errno;
    if (error != EMFILE || !sdk::raise_descriptor_limit()) return system_error("cannot make a socket", error);
  }
}

Result<Fd> listen_on(SocketAddress address) {
  address.set_port(0);
  TUTTI_ASSIGN(Fd socket, make_socket(address.family()));
  if (::bind(socket.get(), address.data(), address.size()) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
    return system_error(fmt::format("cannot listen on {}", address.to_string()));
  return socket;
}

void set_option(const Fd& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

int set_congestion(const Fd& socket, const std::string& name) {
  const auto length = static_cast<socklen_t>(name.size());
  return ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), length) == 0 ? 0 : errno;
}

void acknowledge_now(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_QUICKACK, 1);
}

}  // namespace tutti::net_socket
