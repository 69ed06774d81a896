// SPDX-License-Identifier: Apache-2.0
// A file descriptor with an owner, and the operating system's refusals as Status.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "tutti/status.h"

namespace tutti::base {

/// Closes its descriptor when it goes. Thread-compatible.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

/// The meaning of an errno: "Connection refused".
inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

/// kSystem: "<what>: meaning of errno".
inline Status system_error(std::string_view what, int error = errno) {
  return Status(Code::kSystem, std::string(what) + ": " + errno_text(error));
}

}  // namespace tutti::base
