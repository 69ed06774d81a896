// SPDX-License-Identifier: Apache-2.0
// socket_ping_pong: the bare round trip of a TCP connection, as a floor and as a peer for network plugins over TCP. It
// polls and sleeps as net_bench does.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "net/round_trips.h"

namespace {

using Clock = std::chrono::steady_clock;
using tutti::base::Fd;

constexpr std::chrono::seconds kLimit{30};

struct Request {
  uint16_t serve = 0;
  std::string peer;
  uint64_t bytes = 8;
  uint64_t count = 20000;
  int64_t spin_us = -1;
  bool two_sockets = false;
};

/// The sockets of one side. With --two-sockets, each direction has a socket.
struct Line {
  Fd first;   ///< carries data of the client
  Fd second;  ///< carries data of the server; not valid: the first socket does
  const Fd& other() const { return second.valid() ? second : first; }
};

template <class T>
T required(tutti::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return *std::move(result);
}

/// Waits for the socket: polls, and sleeps after `spin_us` without data.
class Wait {
 public:
  Wait(const Fd& socket, int64_t spin_us, short events) : socket_(socket), spin_us_(spin_us), events_(events) {}
  void once() {
    const auto now = Clock::now();
    if (now - start_ > kLimit) throw std::runtime_error("the other side is silent");
    if (spin_us_ < 0 || now - start_ < std::chrono::microseconds(spin_us_)) return;
    pollfd ready{socket_.get(), events_, 0};
    ::poll(&ready, 1, 100);
  }

 private:
  const Fd& socket_;
  int64_t spin_us_;
  short events_;
  Clock::time_point start_ = Clock::now();
};

/// Moves a whole message with `call`, send or recv.
template <class Call>
void move(const Fd& socket, std::vector<uint8_t>& memory, int64_t spin_us, short events, Call&& call) {
  Wait wait(socket, spin_us, events);
  for (size_t moved = 0; moved < memory.size();) {
    const ssize_t count = call(socket.get(), memory.data() + moved, memory.size() - moved, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count == 0) throw std::runtime_error("the other side closed the connection");
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error(tutti::base::errno_text(errno));
    if (count > 0) moved += static_cast<size_t>(count);
    if (count < 0) wait.once();
  }
}

void follow(const Line& line, const Request& request) {
  std::vector<uint8_t> memory(request.bytes);
  for (uint64_t i = 0; i < request.count; ++i) {
    move(line.first, memory, request.spin_us, POLLIN, ::recv);
    move(line.other(), memory, request.spin_us, POLLOUT, ::send);
  }
}

void lead(const Line& line, const Request& request) {
  std::vector<uint8_t> memory(request.bytes, uint8_t{1});
  tutti::net_bench::RoundTrips times(request.count);
  for (uint64_t i = 0; i < request.count; ++i) {
    move(line.first, memory, request.spin_us, POLLOUT, ::send);
    move(line.other(), memory, request.spin_us, POLLIN, ::recv);
    times.end();
  }
  std::vector<double> samples = times.take();
  std::sort(samples.begin(), samples.end());
  const nlohmann::json row = {{"test", "latency"},
                              {"bytes", request.bytes},
                              {"us", samples[samples.size() / 2]},
                              {"us_p99", samples[samples.size() * 99 / 100]}};
  fmt::print("{}\n", row.dump());
}

Fd prepared(Fd socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Fd accept_from(const Fd& listener) {
  pollfd ready{listener.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kLimit).count())) != 1)
    throw std::runtime_error("no client came");
  return prepared(Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
}

Line accept_line(const Fd& listener, const Request& request) {
  Line line{accept_from(listener), Fd()};
  if (request.two_sockets) line.second = accept_from(listener);
  return line;
}

Line connect_line(const tutti::base::SocketAddress& to, const Request& request) {
  const auto connect = [&] { return prepared(required(tutti::base::connect_to(to, tutti::base::time_in(kLimit)))); };
  Line line{connect(), Fd()};
  if (request.two_sockets) line.second = connect();
  return line;
}

Request parse(int argc, char** argv) {
  Request request;
  CLI::App app("The bare round trip of a TCP connection; prints one line of JSON.", "socket_ping_pong");
  auto* serve = app.add_option("--serve", request.serve, "Wait at this TCP port; needs the client's other options");
  app.add_option("--peer", request.peer, "host:port of the server; without it, a server is forked on this machine")
      ->excludes(serve);
  app.add_option("--bytes", request.bytes, "Of a message (default 8)")->transform(CLI::AsSizeValue(false));
  app.add_option("--count", request.count, "Round trips (default 20000)");
  app.add_option("--spin-us", request.spin_us, "Sleep after so many microseconds without data (default: poll)");
  app.add_flag("--two-sockets", request.two_sockets, "A socket for each direction; on both sides or on none");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (request.bytes == 0 || request.count == 0) throw std::runtime_error("--bytes and --count must be at least 1");
  return request;
}

int run_pair(const Request& request) {
  const std::array<uint8_t, 4> loopback{127, 0, 0, 1};
  const Fd listener = required(tutti::base::listen_on(tutti::base::SocketAddress(loopback, 0)));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork a server");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) std::_Exit(1);
    follow(accept_line(listener, request), request);
    return 0;
  }
  lead(connect_line(tutti::base::local_address(listener), request), request);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run(int argc, char** argv) {
  const Request request = parse(argc, argv);
  if (request.serve == 0 && request.peer.empty()) return run_pair(request);
  if (request.serve != 0) {
    const std::array<uint8_t, 4> any{};
    const Fd listener = required(tutti::base::listen_on(tutti::base::SocketAddress(any, request.serve)));
    follow(accept_line(listener, request), request);
    return 0;
  }
  const auto address = required(tutti::base::SocketAddress::parse(request.peer));
  lead(connect_line(address, request), request);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "socket_ping_pong: {}\n", error.what());
    return 1;
  }
}
