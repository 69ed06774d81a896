// SPDX-License-Identifier: Apache-2.0
// The functions of the operating system for the plugin: descriptors, addresses, options of sockets, the clock.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "tutti/sdk/descriptor_limit.h"
#include "tutti/status.h"

namespace tutti::net_socket {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

/// The moment `duration` from now.
inline Time time_in(Clock::duration duration) {
  return Clock::now() + duration;
}

/// Closes its descriptor when it is destroyed.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The meaning of an errno: "Connection refused".
inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

/// kSystem: the operation, the meaning of errno, and the remedy if the process is out of descriptors.
inline Status system_error(std::string_view what, int error = errno) {
  return {Code::kSystem, std::string(what) + ": " + errno_text(error) + sdk::descriptor_remedy(error)};
}

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;  ///< no address; family() is AF_UNSPEC
  /// An address from the operating system. A family other than IPv4 and IPv6 gives no address.
  explicit SocketAddress(const sockaddr* address);
  /// From the bytes of an address in network order: 4 (IPv4) or 16 (IPv6).
  SocketAddress(std::span<const uint8_t> ip, uint16_t port);

  int family() const { return storage_.any.sa_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  /// The bytes of the address without port, in network order.
  std::span<const uint8_t> ip() const;
  /// Usable only on its own link: 169.254.0.0/16, fe80::/10.
  bool is_link_local() const;
  /// Each host's own: 127.0.0.0/8, ::1.
  bool is_loopback() const;
  std::string ip_text() const;    ///< "10.0.0.1", "fd00::1"
  std::string to_string() const;  ///< "10.0.0.1:4000", "[fd00::1]:4000"
  const sockaddr* data() const { return &storage_.any; }
  socklen_t size() const;

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_ = {.v6 = {}};
};

SocketAddress local_address(const Fd& socket);
SocketAddress remote_address(const Fd& socket);

/// A TCP socket that does not block. A process that is out of descriptors raises its limit first. kSystem with the
/// reason.
Result<Fd> make_socket(int family);

/// Listens on any free port of the address. kSystem with the reason.
Result<Fd> listen_on(SocketAddress address);

/// Sets an integer option that only tunes: failures are ignored.
void set_option(const Fd& socket, int level, int option, int value);

/// Chooses the congestion control of a TCP socket by the name that the kernel gives it ("cubic"). The errno, 0: done.
int set_congestion(const Fd& socket, const std::string& name);

/// Sends the acknowledgement of the bytes that a TCP socket has received now. Linux keeps it back for up to 40 ms if
/// the socket carries data both ways. The congestion control BBR takes the delay for a slow path, and then spreads the
/// sender's next bytes over many ms.
void acknowledge_now(const Fd& socket);

/// A connection that has been silent for this long is lost. The kernel doubles the time between its attempts to send.
/// After a cut of `grace`, the next attempt may come as late as 2 * grace and one first interval (200 ms or more).
constexpr Milliseconds silence_limit(Milliseconds grace) {
  return 2 * grace + Milliseconds(1000);
}

}  // namespace tutti::net_socket
