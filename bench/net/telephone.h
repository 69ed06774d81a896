// SPDX-License-Identifier: Apache-2.0
// The line between the two processes beside the network under test: a TCP connection, or a pair of sockets.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "base/fd.h"

namespace tutti::net_bench {

/// Blocks, at most for a minute per call. Failures throw std::runtime_error. One thread.
class Telephone {
 public:
  /// Waits at a port for the other process.
  static Telephone wait_at(uint16_t port);
  /// Calls "host:port"; tries again for 20 s while there is no listener.
  static Telephone call(const std::string& address);
  /// Both ends of a line within this process, to be parted by fork().
  static std::pair<Telephone, Telephone> pair();

  template <class T>
  void say(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(&value, sizeof value);
  }
  template <class T>
  T hear() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    read(&value, sizeof value);
    return value;
  }

 private:
  explicit Telephone(base::Fd socket);
  void write(const void* from, size_t bytes);
  void read(void* to, size_t bytes);
  base::Fd socket_;
};

}  // namespace tutti::net_bench
