// SPDX-License-Identifier: Apache-2.0
// Two processes that test a plugin together, and the socket between them.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>

#include "export_net.h"

namespace {

/// A socket to the other process. One thread at a time.
class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}

  /// Sends `mine` and returns what the other process sends at its same call. Also a barrier.
  template <class Value>
  Value exchange(const Value& mine) const {
    require(::send(fd_, &mine, sizeof mine, MSG_NOSIGNAL) == ssize_t{sizeof mine}, "the other process is gone");
    Value theirs;
    size_t received = 0;
    while (received < sizeof theirs) {
      pollfd ready{fd_, POLLIN, 0};
      require(poll(&ready, 1, 15'000) == 1, "timed out: the other process sends nothing");
      const ssize_t bytes = recv(fd_, reinterpret_cast<char*>(&theirs) + received, sizeof theirs - received, 0);
      require(bytes > 0, "the other process is gone");
      received += static_cast<size_t>(bytes);
    }
    return theirs;
  }
  void meet() const { exchange(uint8_t{1}); }

 private:
  int fd_;
};

void end_late(int /*signal*/) {
  constexpr char kText[] = "timed out: a call of the plugin does not return\n";
  static_cast<void>(::write(STDERR_FILENO, kText, sizeof kText - 1));
  _exit(3);
}

/// Runs `body`; its exceptions are sentences on stderr. The exit code.
template <class Body>
int judged(const char* who, Body&& body) {
  std::signal(SIGALRM, end_late);
  alarm(45);
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", who, error.what());
    return 1;
  }
  return 0;
}

/// Runs `body` in a process of its own. True: it ended with code 0 in time.
template <class Body>
bool passes_alone(const char* who, Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(judged(who, body));
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Runs `body(rank, link, second_link)` in two processes. True: both ended with code 0 in time.
template <class Body>
bool passes_in_two(Body&& body) {
  int main_link[2], other_link[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, main_link) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, other_link) != 0) {
    return false;
  }
  std::array<pid_t, 2> children{};
  for (int rank = 0; rank < 2; ++rank) {
    children[static_cast<size_t>(rank)] = fork();
    if (children[static_cast<size_t>(rank)] != 0) continue;
    close(main_link[1 - rank]);
    close(other_link[1 - rank]);
    _exit(judged(rank == 0 ? "rank 0" : "rank 1", [&] { body(rank, Link(main_link[rank]), Link(other_link[rank])); }));
  }
  for (const int fd : {main_link[0], main_link[1], other_link[0], other_link[1]}) close(fd);
  bool passes = true;
  for (const pid_t child : children) {
    int status = 0;
    passes &= child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return passes;
}

}  // namespace
