// SPDX-License-Identifier: Apache-2.0
#include "nccl/comm.h"

#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/runtime.h"
#include "nccl/api.h"
#include "nccl/errors.h"

namespace tutti::nccl {
namespace {

constexpr size_t kTombstones = 1024;
constexpr std::chrono::seconds kAbortLimit{2};

struct Leaving {
  int device;
  Communicator communicator;
};

struct Clique {
  int alive = 0;
  std::vector<Leaving> leaving;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Clique> cliques;
  // Handles stay readable for a while after their end, so that a second destruction is an error and no crash.
  std::deque<std::unique_ptr<ncclComm>> tombstones;
};

Registry& registry() {
  static Registry* const instance = [] {
    auto* const made = new Registry;  // never destroyed: threads may still destroy communicators
    base::hold_over_forks(made->mutex);
    return made;
  }();
  return *instance;
}

/// Each communicator ends in a thread of its own, since they wait for each other. An aborted communicator still waits
/// for the earlier work of its stream, and CUDA waits for all kernels of the GPU before it frees memory. These kernels
/// may belong to a communicator that is aborted next. An aborted communicator therefore gets only a moment, and then
/// ends in the background.
void leave(std::vector<Leaving> leaving, bool aborted) {
  std::vector<std::future<void>> done;
  for (Leaving& one : leaving) {
    std::packaged_task<void()> task([last = std::make_shared<Leaving>(std::move(one))]() mutable {
      const cuda::DeviceScope scope(last->device);
      last.reset();
    });
    done.push_back(task.get_future());
    std::thread(std::move(task)).detach();
  }
  for (const std::future<void>& one : done) {
    if (aborted) one.wait_for(kAbortLimit);
    if (!aborted) one.wait();
  }
}

/// Counts the rank out, and returns the ranks that leave now.
std::vector<Leaving> count_out(ncclComm& comm) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.cliques.find(comm.clique);
  if (entry == all.cliques.end()) return {};
  Clique& clique = entry->second;
  if (comm.communicator) clique.leaving.push_back({comm.device, *std::move(comm.communicator)});
  comm.communicator.reset();
  if (--clique.alive > 0) return {};
  std::vector<Leaving> leaving = std::move(clique.leaving);
  all.cliques.erase(entry);
  return leaving;
}

ncclResult_t getter(const ncclComm* comm, const int* out, const char* call) {
  TUTTI_NCCL_TRY(check_handle(comm, call));
  if (out == nullptr) return fail(ncclInvalidArgument, "{}: the place for the answer is null", call);
  if (comm->init.valid()) comm->init.wait();
  return comm->state.load();
}

/// The common first checks of both calls that end a communicator.
ncclResult_t check_end(const ncclComm* comm, const char* call) {
  TUTTI_NCCL_TRY(check_handle(comm, call));
  if (comm->init.valid()) comm->init.wait();
  if (comm->parting.valid()) comm->parting.wait();
  return check_handle(comm, call);  // it may have been aborted meanwhile
}

}  // namespace

Visit::Visit(ncclComm& comm) : comm_(comm) {
  // Partner: destroy(), which marks first and then looks for visitors.
  comm_.visitors.fetch_add(1);
  in_time_ = comm_.magic.load() == ncclComm::kAlive;
}

Visit::~Visit() {
  if (comm_.visitors.fetch_sub(1) == 1) comm_.visitors.notify_all();
}

ncclResult_t check_handle(const ncclComm* comm, std::string_view call) {
  if (comm == nullptr) return fail(ncclInvalidArgument, "{}: the communicator is null", call);
  if (is_of_parent(comm)) {
    return fail(ncclInvalidUsage, "{}: {}", call, comm->origin.refusal("the communicator").text());
  }
  if (comm->magic == ncclComm::kAlive) return ncclSuccess;
  return fail(ncclInvalidArgument, "{}: the communicator was destroyed, or its memory overwritten", call);
}

ncclResult_t check_usable(const ncclComm* comm, std::string_view call) {
  TUTTI_NCCL_TRY(check_handle(comm, call));
  const ncclResult_t state = comm->state.load(std::memory_order_acquire);
  if (state == ncclInProgress) {
    return fail(ncclInvalidArgument, "{}: the communicator is still being made; ask ncclCommGetAsyncError", call);
  }
  if (state != ncclSuccess) return fail(state, "{}: the communicator could not be made", call);
  if (comm->revoked) return fail(ncclInvalidUsage, "{}: the communicator was revoked", call);
  if (comm->finalized) return fail(ncclInvalidArgument, "{}: the communicator was finalized", call);
  return ncclSuccess;
}

void join_clique(ncclComm& comm) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  ++all.cliques[comm.clique].alive;
}

void destroy(ncclComm* comm, bool aborted) {
  comm->magic.store(ncclComm::kDead);
  for (int inside = comm->visitors.load(); inside > 0; inside = comm->visitors.load()) comm->visitors.wait(inside);
  leave(count_out(*comm), aborted);
  comm->registrations.clear();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.tombstones.emplace_back(comm);
  if (all.tombstones.size() > kTombstones) all.tombstones.pop_front();
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

// Enqueued work runs on its stream without a wait here, so there is nothing to flush.
TUTTI_NCCL(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  TUTTI_NCCL_TRY(check_usable(comm, "CommFinalize"));
  comm->finalized = true;
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr || is_of_parent(comm)) return ncclSuccess;
  TUTTI_NCCL_TRY(check_end(comm, "CommDestroy"));
  destroy(comm);
  return ncclSuccess;
}

// Unlike all other calls, this call is allowed while the communicator is still being made: the creating thread then
// finds that it was abandoned.
TUTTI_NCCL(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr || is_of_parent(comm)) return ncclSuccess;
  TUTTI_NCCL_TRY(check_handle(comm, "CommAbort"));
  auto phase = ncclComm::Phase::kBegun;
  if (comm->phase.compare_exchange_strong(phase, ncclComm::Phase::kAbandoned)) return ncclSuccess;
  if (phase == ncclComm::Phase::kAbandoned) return fail(ncclInvalidArgument, "CommAbort: it was aborted before");
  if (comm->communicator) comm->communicator->abort("ncclCommAbort");
  destroy(comm, true);
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
  if (comm == nullptr) return ncclSuccess;
  if (flags != NCCL_REVOKE_DEFAULT) return fail(ncclInvalidArgument, "CommRevoke: flags {} are unknown", flags);
  TUTTI_NCCL_TRY(check_handle(comm, "CommRevoke"));
  if (comm->revoked) return fail(ncclInvalidArgument, "CommRevoke: the communicator was revoked before");
  TUTTI_NCCL_TRY(check_usable(comm, "CommRevoke"));
  comm->revoked = true;
  comm->communicator->abort("ncclCommRevoke");
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
  TUTTI_NCCL_TRY(check_handle(comm, "CommGetAsyncError"));
  if (error == nullptr) return fail(ncclInvalidArgument, "CommGetAsyncError: the place for the error is null");
  *error = comm->state.load(std::memory_order_acquire);
  const Visit visit(*comm);
  // A communicator that was revoked is broken on purpose: that is no error.
  if (*error != ncclSuccess || !visit || !comm->communicator || comm->revoked) return ncclSuccess;
  const tutti::Status status = comm->communicator->async_error();
  *error = result_of(status.code());
  if (!status.ok() && !comm->told.exchange(true)) report(status);
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count)) {
  TUTTI_NCCL_TRY(getter(comm, count, "CommCount"));
  *count = comm->size;
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device)) {
  TUTTI_NCCL_TRY(getter(comm, device, "CommCuDevice"));
  *device = comm->device;
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank)) {
  TUTTI_NCCL_TRY(getter(comm, rank, "CommUserRank"));
  *rank = comm->rank;
  return ncclSuccess;
}
