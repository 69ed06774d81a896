// SPDX-License-Identifier: Apache-2.0
#include "address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

namespace tutti::net_ib {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int kBacklog = 1024;

sockaddr_storage socket_address(const Ip& ip, uint16_t port, unsigned interface, socklen_t& length) {
  sockaddr_storage out{};
  if (ip.family() == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(out);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, ip.bytes.data() + kMapped.size(), 4);
    length = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(out);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, ip.bytes.data(), 16);
    if (ip.is_link_local()) in.sin6_scope_id = interface;
    length = sizeof in;
  }
  return out;
}

/// The addresses of all interfaces that are up.
Result<std::vector<Interface>> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return system_error("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> out;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    out.push_back({one->ifa_name, if_nametoindex(one->ifa_name), Ip::from(*one->ifa_addr)});
  }
  return out;
}

bool is_loopback(const Interface& one) {
  return one.name == "lo";
}

/// The better address comes first: IPv4, then IPv6, then link-local.
int rank_of(const Interface& one) {
  return one.ip.family() == AF_INET ? 0 : one.ip.is_link_local() ? 2 : 1;
}

}  // namespace

Ip Ip::from(const sockaddr& address) {
  Ip ip;
  if (address.sa_family == AF_INET) {
    std::copy(kMapped.begin(), kMapped.end(), ip.bytes.begin());
    std::memcpy(ip.bytes.data() + kMapped.size(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else {
    std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  }
  return ip;
}

int Ip::family() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()) ? AF_INET : AF_INET6;
}

bool Ip::is_link_local() const {
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string Ip::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  const bool is_v4 = family() == AF_INET;
  inet_ntop(is_v4 ? AF_INET : AF_INET6, bytes.data() + (is_v4 ? kMapped.size() : 0), text, sizeof text);
  return text;
}

Result<Subnet> Subnet::parse(const std::string& text) {
  Subnet out;
  if (text.empty()) return out;
  const size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  int bits = -1;
  if (slash != std::string::npos) std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
  std::array<uint8_t, 16> raw{};
  if (inet_pton(AF_INET, address.c_str(), raw.data()) == 1 && bits >= 0 && bits <= 32) {
    std::copy(kMapped.begin(), kMapped.end(), out.ip_.bytes.begin());
    std::copy_n(raw.begin(), 4, out.ip_.bytes.begin() + kMapped.size());
    out.bits_ = bits + 96;
  } else if (inet_pton(AF_INET6, address.c_str(), raw.data()) == 1 && bits >= 0 && bits <= 128) {
    out.ip_.bytes = raw;
    out.bits_ = bits;
  } else {
    return Status(Code::kConfig,
                  fmt::format("settings.net.ib.subnet is '{}'; write it like 10.0.0.0/8 or fd00::/8", text));
  }
  out.any_ = false;
  return out;
}

bool Subnet::contains(const Ip& ip) const {
  if (any_) return true;
  for (int bit = 0; bit < bits_; ++bit) {
    const auto place = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if (((ip.bytes[place] ^ ip_.bytes[place]) & mask) != 0) return false;
  }
  return true;
}

Result<Interface> choose_interface(const std::string& wanted, const Ip& of_port,
                                   const std::vector<std::string>& beside) {
  TUTTI_ASSIGN(std::vector<Interface> all, interfaces());
  std::stable_sort(all.begin(), all.end(),
                   [](const Interface& a, const Interface& b) { return rank_of(a) < rank_of(b); });
  const auto first = [&](auto&& fits) { return std::find_if(all.begin(), all.end(), fits); };
  if (!wanted.empty()) {
    const auto named = first([&](const Interface& one) { return one.name == wanted; });
    if (named != all.end()) return *named;
    return Status(Code::kNotFound,
                  fmt::format("settings.net.ib.exchange is '{}', but no interface of this name is up with an address; "
                              "`ip address` lists them",
                              wanted));
  }
  auto found = first([&](const Interface& one) { return one.ip == of_port; });
  if (found == all.end()) {
    found =
        first([&](const Interface& one) { return std::find(beside.begin(), beside.end(), one.name) != beside.end(); });
  }
  if (found == all.end()) found = first([](const Interface& one) { return !is_loopback(one); });
  if (found == all.end()) found = all.begin();
  if (found != all.end()) return *found;
  return Status(Code::kNotFound,
                "no network interface is up with an IP address, over which ranks could exchange queue "
                "pair numbers; give one an address");
}

Result<Fd> listen_at(const Interface& at, uint16_t& port) {
  socklen_t length = 0;
  sockaddr_storage address = socket_address(at.ip, 0, at.index, length);
  Fd out(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!out.valid()) return system_error("cannot make a socket");
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(out.get(), raw, length) != 0 || ::listen(out.get(), kBacklog) != 0 ||
      getsockname(out.get(), raw, &length) != 0) {
    return system_error(fmt::format("cannot listen at {} ({})", at.ip.to_string(), at.name));
  }
  port = ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return out;
}

Result<Fd> connect_from(const Interface& from, const Ip& to, uint16_t port) {
  socklen_t length = 0;
  const sockaddr_storage there = socket_address(to, port, from.index, length);
  Fd out(::socket(there.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!out.valid()) return system_error("cannot make a socket");
  if (from.ip.family() == there.ss_family) {
    const sockaddr_storage here = socket_address(from.ip, 0, from.index, length);
    if (bind(out.get(), reinterpret_cast<const sockaddr*>(&here), length) != 0)
      return system_error(fmt::format("cannot connect from {} ({})", from.ip.to_string(), from.name));
  }
  if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&there), length) == 0 || errno == EINPROGRESS) return out;
  return Status(Code::kRemote, errno_text(errno));
}

Result<bool> is_connected(const Fd& socket, bool& refused) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  refused = error == ECONNREFUSED;
  if (error != 0) return Status(Code::kRemote, errno_text(error));
  tcp_info info{};
  length = sizeof info;
  getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
  return info.tcpi_state != TCP_SYN_SENT;
}

void watch_silence(const Fd& socket, std::chrono::milliseconds silence) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof value);  // a refusal leaves the system's choice
  };
  const int seconds = static_cast<int>(std::clamp<int64_t>(silence.count() / 1000, 1, 30000));
  const int interval = std::max(1, seconds / 4);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max(2, seconds / interval));
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace tutti::net_ib
