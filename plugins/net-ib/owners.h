// SPDX-License-Identifier: Apache-2.0
// Owners of descriptors and of objects of libibverbs, and refusals of the system as Status.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "tutti/status.h"

namespace tutti::net_ib {

/// Closes its descriptor at its end.
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

/// Calls the function of libibverbs that destroys an object.
template <auto Destroy>
struct Destroyer {
  template <class Object>
  void operator()(Object* object) const {
    Destroy(object);
  }
};
template <class Object, auto Destroy>
using Owner = std::unique_ptr<Object, Destroyer<Destroy>>;

using OpenDevice = Owner<ibv_context, ibv_close_device>;
using ProtectionDomain = Owner<ibv_pd, ibv_dealloc_pd>;
using CompletionChannel = Owner<ibv_comp_channel, ibv_destroy_comp_channel>;
using CompletionQueue = Owner<ibv_cq, ibv_destroy_cq>;
using RawQueuePair = Owner<ibv_qp, ibv_destroy_qp>;
using MemoryRegion = Owner<ibv_mr, ibv_dereg_mr>;

/// The meaning of an errno: "Connection refused".
inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

/// kSystem: "what: meaning of errno", with the remedy if descriptors are used up.
inline Status system_error(std::string_view what, int error = errno) {
  const char* const remedy =
      error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n, LimitNOFILE)" : "";
  return Status(Code::kSystem, std::string(what) + ": " + errno_text(error) + remedy);
}

}  // namespace tutti::net_ib
