// SPDX-License-Identifier: Apache-2.0
// TCP sockets: addresses, listening, connecting with a deadline. All sockets are non-blocking and close on exec.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "tutti/status.h"

namespace tutti::base {

/// An IPv4 or IPv6 address with a port. A plain value.
class SocketAddress {
 public:
  SocketAddress() = default;  ///< no address; family() is AF_UNSPEC
  /// An address from the operating system. A family other than IPv4 and IPv6 gives no address.
  explicit SocketAddress(const sockaddr* address);
  /// From the bytes of an address in network order: 4 (IPv4) or 16 (IPv6).
  SocketAddress(std::span<const uint8_t> ip, uint16_t port);

  /// "10.0.0.1:4000", "[fd00::1]:4000", or "node7:4000". A name goes to the resolver of this host. Errors:
  /// kInvalidArgument (the form), kNotFound (the name is unknown), kTimeout (the resolver is silent until `deadline`).
  static Result<SocketAddress> parse(std::string_view text, Time deadline = time_in(kNameLimit));
  /// The longest wait for the resolver without a deadline.
  static constexpr Milliseconds kNameLimit{30000};

  int family() const { return storage_.any.sa_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  /// The bytes of the address without port, in network order.
  std::span<const uint8_t> ip() const;
  /// Usable only on its own link: 169.254.0.0/16, fe80::/10.
  bool is_link_local() const;
  /// Leads to the host itself: 127.0.0.0/8, ::1.
  bool is_loopback() const;
  /// Without the port, and without brackets.
  std::string ip_text() const;
  std::string to_string() const;

  const sockaddr* data() const { return &storage_.any; }
  socklen_t size() const;

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_ = {.v6 = {}};
};

/// Part of the text of listen_on() if the port is in use.
inline constexpr std::string_view kPortInUse = "is in use by another process";
/// Listens; port 0 takes any free port, which local_address() tells. A port in use is kSystem and named.
Result<Fd> listen_on(const SocketAddress& address);

SocketAddress local_address(const Fd& socket);
SocketAddress remote_address(const Fd& socket);

/// Connects. While there is no listener, tries again until the deadline (kTimeout, with the last reason). A network
/// that cannot be reached at all fails at once (kSystem).
Result<Fd> connect_to(const SocketAddress& address, Time deadline);

/// A connection that has been silent for this long is lost. The kernel doubles the time between its attempts to send.
/// After a cut of `grace`, the next attempt may come as late as 2 * grace and one first interval (200 ms or more).
constexpr Milliseconds silence_limit(Milliseconds grace) {
  return 2 * grace + Milliseconds(1000);
}

/// Tunes a connection for small messages, and limits the silence of the other side's host. A connection survives each
/// silence shorter than `grace`. After a longer silence it fails with ETIMEDOUT, at most 2 * `grace` + 1 s after the
/// last sign of life. Idle connections are probed each second, after an idle time of half of `grace` (1 s to 30 s). A
/// stopped process still counts as there, since its kernel answers. But if its receive buffer is full, the kernel of
/// the sender gives up after 2 * `grace` + 1 s, too (from Linux 5.11 on).
void set_connection_options(const Fd& socket, Milliseconds grace);

}  // namespace tutti::base
