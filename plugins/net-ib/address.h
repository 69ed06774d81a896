// SPDX-License-Identifier: Apache-2.0
// IP addresses and the TCP sockets of the exchange.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "owners.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// An IPv4 or IPv6 address as 16 bytes: IPv4 is mapped (::ffff:a.b.c.d), as in GIDs.
struct Ip {
  std::array<uint8_t, 16> bytes{};

  static Ip from(const sockaddr& address);
  int family() const;
  bool is_link_local() const;
  bool is_none() const { return bytes == std::array<uint8_t, 16>{}; }
  std::string to_string() const;
  bool operator==(const Ip&) const = default;
};

/// "10.0.0.0/8". Contains every address where it is empty.
class Subnet {
 public:
  Subnet() = default;
  /// kConfig for a text that is no subnet.
  static Result<Subnet> parse(const std::string& text);
  bool contains(const Ip& ip) const;

 private:
  Ip ip_;
  int bits_ = 0;  // bits of the mapped form
  bool any_ = true;
};

/// The address of one network interface, and its number, which link-local addresses need.
struct Interface {
  std::string name;
  unsigned index = 0;
  Ip ip;
};

/// The address to exchange at for `wanted`, an interface, or for the port with the address `of_port` and the interfaces
/// `beside`, or for any port. kNotFound where no interface is up.
Result<Interface> choose_interface(const std::string& wanted, const Ip& of_port,
                                   const std::vector<std::string>& beside);

/// A socket that listens at the address; `port` gets its port. Does not block.
Result<Fd> listen_at(const Interface& at, uint16_t& port);
/// A socket that connects one address to a second address. Does not block.
Result<Fd> connect_from(const Interface& from, const Ip& to, uint16_t port);
/// True: the socket is connected. kRemote: it cannot connect; `refused` says that there is no listener.
Result<bool> is_connected(const Fd& socket, bool& refused);
/// Lets the kernel notice a host that is silent for longer than `silence`.
void watch_silence(const Fd& socket, std::chrono::milliseconds silence);

}  // namespace tutti::net_ib
