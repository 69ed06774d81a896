// SPDX-License-Identifier: Apache-2.0
// A thread block on the CPU. Its threads take turns on one thread of the host, warp by warp in any order, until each
// waits for other threads. So kernels run under sanitizers and debuggers, in orders that no GPU would choose, and on
// machines without a GPU.
//
// Within a warp, threads run in ascending order from one meeting point to the next, as if the warp were converged. A
// warp of a different CTA sees their stores in ascending order, all or some of them.
//
// The emulator does not show effects of weak memory: stores are seen in order. Bulk copies complete at any time before
// a thread may rely on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::emulator {

struct LaunchShape {
  uint32_t cta = 0;  ///< blockIdx.x
  uint32_t row = 0;  ///< blockIdx.y
  uint32_t cta_count = 1;
  uint32_t threads = 32;  ///< a multiple of 32, at most 1024
  uint32_t dynamic_shared_bytes = 0;
  uint64_t seed = 0;  ///< seed of the order of events
};

/// Runs `kernel` once for each thread of the CTA, on the calling thread. Ends the program with a message where threads
/// of a warp meet at different places, or all wait for each other.
void run_cta(const LaunchShape& shape, const std::function<void()>& kernel);

/// Changes the numbers that threads store to words of memory, or no longer, if `change` is empty. No CTA may run.
void change_stores(std::function<uint32_t(const uint32_t* word, uint32_t number)> change);

// --- For instructions.h and cuda.h: called by a thread of the CTA that runs on the calling thread

enum class Meeting : uint32_t { kSync, kVote, kReduceMax };

/// Lets other threads run, often or not.
void yield();
/// Waits for a condition that other threads of the CTA, or bulk copies, make true.
void wait_for(const std::function<bool()>& condition);
/// Waits until all threads of the CTA are here, at the same kind of meeting: kSync or kVote. Returns whether any thread
/// votes.
bool meet_cta(Meeting kind, bool vote);
struct Met {
  uint32_t votes = 0;  ///< votes of the warp's threads, a bit each: value != 0
  int32_t most = 0;
};
/// Waits until all threads of the warp are here, at the same kind of meeting.
Met meet_warp(Meeting kind, int32_t value);

uint32_t dynamic_shared_bytes();
/// The number to store to `word` (change_stores()).
uint32_t number_to_store(const uint32_t* word, uint32_t number);

/// To shared memory; then `done`.
void copy_later(void* to, const void* from, size_t bytes, std::function<void()> done);
/// From shared memory, in the thread's current group, and the end of that group.
void store_later(void* to, const void* from, size_t bytes);
void end_store_group();
/// Waits until at most so many of the thread's groups are not read, or not stored.
void wait_groups(uint32_t pending, bool stored);

}  // namespace tutti::emulator
