// SPDX-License-Identifier: Apache-2.0
// Whether the other host still answers, and why a stream has ended.
#pragma once

#include <string>

#include "system.h"

namespace tutti::net_socket {

/// Watches the acknowledgements of a socket. The other host acknowledges data that its process has not read yet, also
/// while that process is stopped. As long as its buffers are full it answers to each attempt of TCP, and the time
/// between two attempts grows.
class Acknowledgements {
 public:
  /// How long sent data have had no acknowledgement, while no other sign of the other host has come; 0 while that may
  /// be due to the time between two attempts. Exceeds each limit at the latest 1.5 times the limit after the last sign,
  /// if the function is called often. Costs a system call.
  Milliseconds silence(const Fd& socket);
  /// Whether silence() is longer than `limit`. Most calls make no system call.
  bool have_ended(const Fd& socket, Milliseconds limit);

 private:
  uint64_t acknowledged_ = 0;  // bytes
  Time since_{};               // when `acknowledged_` last changed
  Time next_check_{};
};

/// Time since the other host last sent anything on the socket. Costs a system call.
Milliseconds time_since_sign(const Fd& socket);

/// The text for an errno of a read or a write, and for 0, the end of a stream. `limit`: the silence after which a
/// stream is given up.
std::string reason_of(int error, Milliseconds limit);

}  // namespace tutti::net_socket
