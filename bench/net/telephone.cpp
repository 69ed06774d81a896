// SPDX-License-Identifier: Apache-2.0
#include "net/telephone.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>

#include "base/clock.h"
#include "base/socket.h"

namespace tutti::net_bench {
namespace {

constexpr std::chrono::seconds kLimit{60};
constexpr std::chrono::seconds kCallLimit{20};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + base::errno_text(errno));
}

template <class T>
T required(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return *std::move(result);
}

}  // namespace

Telephone::Telephone(base::Fd socket) : socket_(std::move(socket)) {
  const int flags = fcntl(socket_.get(), F_GETFL);
  const timeval limit{kLimit.count(), 0};
  const int on = 1;
  if (fcntl(socket_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
    fail("cannot prepare the line to the other process");
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // a socket pair has no such option
}

Telephone Telephone::wait_at(uint16_t port) {
  const std::array<uint8_t, 4> any{};
  const base::Fd listener = required(base::listen_on(base::SocketAddress(any, port)));
  pollfd ready{listener.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kLimit).count())) != 1)
    throw std::runtime_error("the client did not call within a minute");
  base::Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) fail("cannot accept the client");
  return Telephone(std::move(socket));
}

Telephone Telephone::call(const std::string& address) {
  const base::SocketAddress to = required(base::SocketAddress::parse(address));
  return Telephone(required(base::connect_to(to, base::time_in(kCallLimit))));
}

std::pair<Telephone, Telephone> Telephone::pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail("cannot make a pair of sockets");
  base::Fd first(ends[0]), second(ends[1]);
  return {Telephone(std::move(first)), Telephone(std::move(second))};
}

void Telephone::write(const void* from, size_t bytes) {
  if (::send(socket_.get(), from, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) fail("lost the other process");
}

void Telephone::read(void* to, size_t bytes) {
  errno = ECONNRESET;
  if (::recv(socket_.get(), to, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) fail("lost the other process");
}

}  // namespace tutti::net_bench
