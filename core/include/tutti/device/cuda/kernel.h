// SPDX-License-Identifier: Apache-2.0
// The kernel that runs a plan: a block per channel, everything it must know in its parameters. For nvcc.
#pragma once

#include "tutti/device/cuda/team.h"

namespace tutti::device {

inline constexpr uint32_t kMaxKernelRanks = 16;
inline constexpr uint32_t kMaxKernelSteps = 64;
inline constexpr uint32_t kMaxKernelPeers = 64;

/// The parameters of one launch; below 4 KiB. `plan` and `work` carry no pointers of their own: the kernel sets them.
struct CudaLaunch {
  tutti_work work;
  tutti_plan plan;
  /// In this GPU's memory, per channel (block): senders to all ranks, then receivers from all ranks.
  tutti_connection* connections;
  uint64_t part_elements;  ///< of a block that each channel handles; the last ones less
  tutti_plan_step steps[kMaxKernelSteps];
  tutti_plan_peer peers[kMaxKernelPeers];
};
static_assert(sizeof(CudaLaunch) <= 4096);

/// The connections of one channel while its block runs.
struct BlockConnections {
  tutti_connection both[2 * kMaxKernelRanks];
  tutti_connection* senders[kMaxKernelPeers];
  tutti_connection* receivers[kMaxKernelPeers];

  /// All words at once, one per thread: a single round trip to memory.
  __device__ void load(const CudaLaunch& launch, const tutti_connection* from) {
    const uint32_t words = words_of(launch);
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
      reinterpret_cast<uint64_t*>(both)[i] = reinterpret_cast<const uint64_t*>(from)[i];
    }
    const uint32_t ranks = launch.plan.rank_count;
    for (uint32_t i = threadIdx.x; i < launch.plan.peer_count; i += blockDim.x) {
      senders[i] = both + launch.peers[i].rank;
      receivers[i] = both + ranks + launch.peers[i].rank;
    }
  }
  __device__ void store(const CudaLaunch& launch, tutti_connection* to) const {
    for (uint32_t i = threadIdx.x; i < 2 * launch.plan.rank_count; i += blockDim.x) {
      to[i].step = both[i].step;
      to[i].seen = both[i].seen;
    }
  }

 private:
  __device__ static uint32_t words_of(const CudaLaunch& launch) {
    return 2 * launch.plan.rank_count * static_cast<uint32_t>(sizeof(tutti_connection) / sizeof(uint64_t));
  }
};

/// Reads what this thread is likely to read first, so that it comes while the connections do.
template <class T>
__device__ void warm_input(const CudaLaunch& launch) {
  const uint64_t at = launch.part_elements * blockIdx.x + threadIdx.x * (8 / sizeof(T));
  if (at >= launch.work.count) return;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(static_cast<const T*>(launch.work.input) + at));
}

template <class Wire, class T, class Op>
__global__ void __launch_bounds__(512) run_plan(const __grid_constant__ CudaLaunch launch) {
  __shared__ BlockConnections connections;
  __shared__ uint32_t aborted;
  tutti_connection* const mine = launch.connections + size_t{blockIdx.x} * 2 * launch.plan.rank_count;
  if (threadIdx.x == 0) aborted = 0;
  warm_input<T>(launch);
  connections.load(launch, mine);

  tutti_plan plan = launch.plan;
  plan.steps = launch.steps;
  plan.peers = launch.peers;
  tutti_work work = launch.work;
  work.plan = &plan;
  work.senders = connections.senders;
  work.receivers = connections.receivers;
  const uint64_t part = launch.part_elements;
  work.begin = part * blockIdx.x < work.count ? part * blockIdx.x : work.count;
  work.end = work.begin + part < work.count ? work.begin + part : work.count;
  __syncthreads();

  CudaTeam<T, Op> team(work, aborted);
  Executor<CudaTeam<T, Op>, Wire>(team, work).run();
  __syncthreads();
  connections.store(launch, mine);
}

}  // namespace tutti::device
