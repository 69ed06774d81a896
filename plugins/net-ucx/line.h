// SPDX-License-Identifier: Apache-2.0
// Lines: the TCP connections beside UCX, over which two sides prove their identity, and learn that the peer has gone.
#pragma once

#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tutti/status.h"

namespace tutti::net_ucx {

using Clock = std::chrono::steady_clock;

/// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      if (fd_ >= 0) ::close(fd_);
      fd_ = std::exchange(other.fd_, -1);
    }
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

/// "cannot do this: No such device". Names the remedy where descriptors are missing.
Status system_error(const std::string& what, int error);

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  static SocketAddress of(uint16_t family, std::span<const uint8_t, 16> ip, uint16_t port);
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  /// Network order; IPv4 addresses take the first four bytes.
  std::array<uint8_t, 16> ip() const;
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* data() { return reinterpret_cast<sockaddr*>(&storage); }
  /// "10.0.0.1:4000"
  std::string text() const;
};

/// The address of an interface at which lines end. Empty name: the first interface that is neither a bridge of
/// containers nor the loopback, else the loopback. IPv4 comes before IPv6. kConfig if there is none.
Result<SocketAddress> address_of_interface(const std::string& name);

SocketAddress local_address(const Fd& socket);
SocketAddress remote_address(const Fd& socket);

/// A silence shorter than `grace` does not end a line. A longer silence ends it after at most 2 * grace + 1 s.
constexpr std::chrono::milliseconds silence_limit(std::chrono::milliseconds grace) {
  return 2 * grace + std::chrono::milliseconds(1000);
}
/// How long a receiver waits for a sender's first message over UCX.
constexpr std::chrono::seconds trial_limit(std::chrono::milliseconds grace) {
  return std::chrono::ceil<std::chrono::seconds>(silence_limit(grace));
}
void set_options(const Fd& socket, std::chrono::milliseconds grace);

/// Reads or writes as many bytes of a whole message as is possible now; `moved` counts the bytes so far. True once it
/// is whole. kRemote if the other side closed or the line broke.
Result<bool> read_some(const Fd& socket, std::span<std::byte> message, size_t& moved);
Result<bool> write_some(const Fd& socket, std::span<const std::byte> message, size_t& moved);

}  // namespace tutti::net_ucx
