// SPDX-License-Identifier: Apache-2.0
// The object behind an application's handle: a communicator of Tutti, its GPU, and its phase of life.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "nccl/config.h"
#include "nccl/nccl.h"
#include "nccl/reductions.h"
#include "tutti/communicator.h"

/// One thread at a time, except ncclCommGetAsyncError and ncclCommAbort.
struct ncclComm {
  static constexpr uint64_t kAlive = 0x5475747469436f6d;
  static constexpr uint64_t kDead = 0xdead5475747469ff;
  enum class Phase { kBegun, kDone, kAbandoned };

  std::atomic<uint64_t> magic{kAlive};
  tutti::base::Origin origin;
  int device = 0;
  int rank = 0;
  int size = 0;
  bool blocking = true;
  std::string clique;                ///< equal for the communicators of this process that are ranks of one and the same
  int splits = 0;                    ///< splits of this communicator so far, equal on all ranks
  std::shared_future<void> parting;  ///< the latest split; ready when it does not use this communicator any more
  tutti::nccl::Wishes wishes;

  std::shared_future<void> init;                 ///< ready when `communicator` and `state` are final; may be invalid
  std::atomic<Phase> phase{Phase::kBegun};       ///< abandoned: the creating thread destroys it
  std::atomic<ncclResult_t> state{ncclSuccess};  ///< ncclInProgress until made; a failure: it could not be
  std::optional<tutti::Communicator> communicator;
  std::atomic<bool> finalized{false};
  std::atomic<bool> revoked{false};
  std::atomic<bool> told{false};  ///< whether the failure was logged: applications ask again and again
  std::atomic<int> visitors{0};   ///< threads that use `communicator` now; with `magic`, see Visit

  tutti::nccl::Reductions reductions;
  std::vector<std::unique_ptr<char>> registrations;  ///< handles only: a registration has no effect
  /// Kept until the same number was ended: applications cannot name a window.
  std::vector<tutti::Registration> windows;
  size_t ended_windows = 0;
};

namespace tutti::nccl {

/// ncclSuccess if the handle is valid, else ncclInvalidArgument; ncclInvalidUsage in a forked child of the process that
/// made it. `call` is for the text.
ncclResult_t check_handle(const ncclComm* comm, std::string_view call);
/// As check_handle, and operations may be given to it: made, not finalized, not revoked.
ncclResult_t check_usable(const ncclComm* comm, std::string_view call);
/// Whether a forked child got the communicator from its parent: there, its end does nothing.
inline bool is_of_parent(const ncclComm* comm) {
  return comm->magic == ncclComm::kAlive && !comm->origin.is_here();
}
/// Keeps a communicator from being freed while a thread uses it and a different thread aborts it.
class Visit {
 public:
  explicit Visit(ncclComm& comm);
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  /// Whether it was in time; else the communicator is not to be touched.
  explicit operator bool() const { return in_time_; }

 private:
  ncclComm& comm_;
  bool in_time_;
};

/// Takes part in the counting of its clique; once, before the communicator is made.
void join_clique(ncclComm& comm);
/// Destroys the communicator and keeps its handle as a tombstone. Ranks of one communicator in one process leave
/// together, when the last of them is destroyed: a rank that leaves waits for its peers, and one thread may destroy
/// them one by one. Waits for visits to end first. An aborted communicator does not wait long for kernels of other
/// communicators on its GPU.
void destroy(ncclComm* comm, bool aborted = false);

}  // namespace tutti::nccl
