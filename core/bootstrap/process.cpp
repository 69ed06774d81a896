// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/process.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <mutex>

#include "base/fork.h"

namespace tutti::bootstrap {
namespace {

struct Token {
  pid_t pid = 0;
  uint64_t value = 0;
};

uint64_t draw() {
  uint64_t value = 0;
  // Without random numbers a time and a process id still tell the processes of a job apart.
  if (::getrandom(&value, sizeof value, 0) != sizeof value)
    value = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) << 20 ^
            static_cast<uint64_t>(::getpid());
  return value;
}

}  // namespace

uint64_t process_token() {
  static std::mutex& mutex = base::process_mutex();
  static Token token;
  const std::lock_guard lock(mutex);
  if (token.pid != ::getpid()) {  // the first call, or the first call in a forked child
    token.pid = ::getpid();
    token.value = draw();
  }
  return token.value;
}

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string origin_of(const std::string& host, uint32_t pid) {
  return fmt::format("{} pid {}", host, pid);
}

}  // namespace tutti::bootstrap
