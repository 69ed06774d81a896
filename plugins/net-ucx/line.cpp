// SPDX-License-Identifier: Apache-2.0
#include "line.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

namespace tutti::net_ucx {
namespace {

constexpr std::array<std::string_view, 4> kBridges = {"docker", "virbr", "cni", "br-"};

void set_option(const Fd& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);  // only tunes
}

/// The lower the better; negative: cannot be used.
int rank_of(const ifaddrs& one, const std::string& wanted) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return -1;
  const int family = one.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return -1;
  if (family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return -1;  // valid on one link only
  }
  const int second = family == AF_INET6 ? 1 : 0;
  const std::string_view name = one.ifa_name;
  if (!wanted.empty()) return name == wanted ? second : -1;
  if ((one.ifa_flags & IFF_LOOPBACK) != 0) return 4 + second;
  const bool bridge =
      std::any_of(kBridges.begin(), kBridges.end(), [&](std::string_view prefix) { return name.starts_with(prefix); });
  return (bridge ? 2 : 0) + second;
}

constexpr const char* kMoreFiles = "; raise the limit of open files (ulimit -n)";

Status lost(int error) {
  return {Code::kRemote, std::generic_category().message(error)};
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Status system_error(const std::string& what, int error) {
  const bool files = error == EMFILE || error == ENFILE;
  return {Code::kSystem, what + ": " + std::generic_category().message(error) + (files ? kMoreFiles : "")};
}

SocketAddress SocketAddress::of(uint16_t family, std::span<const uint8_t, 16> ip, uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = family;
  if (family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, ip.data(), sizeof v4->sin_addr);
    address.size = sizeof *v4;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, ip.data(), sizeof v6->sin6_addr);
    address.size = sizeof *v6;
  }
  return address;
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

std::array<uint8_t, 16> SocketAddress::ip() const {
  std::array<uint8_t, 16> bytes{};
  if (family() == AF_INET) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, 4);
  } else {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, 16);
  }
  return bytes;
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  const auto bytes = ip();
  inet_ntop(family(), bytes.data(), out.data(), out.size());
  return family() == AF_INET ? fmt::format("{}:{}", out.data(), port()) : fmt::format("[{}]:{}", out.data(), port());
}

Result<SocketAddress> address_of_interface(const std::string& name) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(raw, freeifaddrs);
  const ifaddrs* best = nullptr;
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    const int rank = rank_of(*one, name);
    if (rank >= 0 && (best == nullptr || rank < rank_of(*best, name))) best = one;
  }
  if (best == nullptr) {
    return Status(Code::kConfig, name.empty()
                                     ? std::string("this host has no network interface that is up with an address")
                                     : fmt::format("settings.net.ucx.interface is '{}', but no interface of this name "
                                                   "is up with an address",
                                                   name));
  }
  SocketAddress address;
  address.size = best->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, best->ifa_addr, address.size);
  return address;
}

SocketAddress local_address(const Fd& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  getsockname(socket.get(), address.data(), &address.size);
  return address;
}

SocketAddress remote_address(const Fd& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  getpeername(socket.get(), address.data(), &address.size);
  return address;
}

void set_options(const Fd& socket, std::chrono::milliseconds grace) {
  const int64_t limit_ms = std::min<int64_t>(silence_limit(grace).count(), 100'000'000);
  const auto idle_s = static_cast<int>(std::clamp<int64_t>(grace.count() / 2000, 1, 30));
  const auto interval_s = static_cast<int>(std::max<int64_t>(1, limit_ms / 100'000));  // at most 127 probes
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT,
             static_cast<int>(std::clamp<int64_t>((limit_ms / 1000 - idle_s) / interval_s, 2, 127)));
}

Result<bool> read_some(const Fd& socket, std::span<std::byte> message, size_t& moved) {
  if (moved == message.size()) return true;
  const ssize_t got = ::recv(socket.get(), message.data() + moved, message.size() - moved, MSG_DONTWAIT);
  if (got == 0) return lost(ECONNRESET);
  if (got < 0 && !would_block(errno)) return lost(errno);
  if (got > 0) moved += static_cast<size_t>(got);
  return moved == message.size();
}

Result<bool> write_some(const Fd& socket, std::span<const std::byte> message, size_t& moved) {
  if (moved == message.size()) return true;
  const ssize_t sent =
      ::send(socket.get(), message.data() + moved, message.size() - moved, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && !would_block(errno)) return lost(errno);
  if (sent > 0) moved += static_cast<size_t>(sent);
  return moved == message.size();
}

}  // namespace tutti::net_ucx
