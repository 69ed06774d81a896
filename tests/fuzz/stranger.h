// SPDX-License-Identifier: Apache-2.0
// The common part of the fuzzers of network plugins: a stranger that connects to a listener over the loopback.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>

namespace tutti::fuzz {

using Bytes = std::span<const uint8_t>;

inline void demand(bool holds) {
  if (!holds) std::abort();
}

/// The front of the input as an object, which is filled up by its default where the input ends.
template <class T>
T object_from(Bytes& bytes) {
  T out;
  const size_t size = std::min(bytes.size(), sizeof out);
  std::memcpy(static_cast<void*>(&out), bytes.data(), size);
  bytes = bytes.subspan(size);
  return out;
}

/// A connection to a port of the loopback. `Fd` owns a descriptor.
template <class Fd>
Fd dial(uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  demand(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  const linger at_once{1, 0};  // no port waits in TIME_WAIT
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return socket;
}

template <class Fd>
Fd take_guest(const Fd& listening) {
  Fd socket;
  while (!socket.valid()) socket = Fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return socket;
}

template <class Fd>
void say(const Fd& socket, const void* from, size_t bytes) {
  if (bytes > 0) ::send(socket.get(), from, bytes, MSG_NOSIGNAL);
}

/// An object from the listener, which this thread drives. False: the listener has ended the connection.
template <class Listener, class Fd, class T>
bool hear(Listener& listener, const Fd& socket, T& to) {
  for (size_t read = 0; read < sizeof to;) {
    demand(listener.accept().ok());
    auto* const place = reinterpret_cast<uint8_t*>(&to) + read;
    const ssize_t got = ::recv(socket.get(), place, sizeof to - read, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got > 0) read += static_cast<size_t>(got);
  }
  return true;
}

/// Drives a connect whose listener sent bytes of the input. It must not succeed.
template <class Connecting>
void drive_in_vain(Connecting& connecting) {
  for (int round = 0; round < 3; ++round) {
    auto made = connecting.advance();
    if (!made.ok()) return;
    demand(*made == nullptr);
  }
}

/// The first byte of an input chooses the place that reads the rest.
inline int choose(const uint8_t* data, size_t size, std::initializer_list<void (*)(Bytes)> places) {
  if (size > 0) places.begin()[data[0] % places.size()](Bytes(data + 1, size - 1));
  return 0;
}

}  // namespace tutti::fuzz
