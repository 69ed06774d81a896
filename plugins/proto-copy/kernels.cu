// SPDX-License-Identifier: Apache-2.0
// The kernels before and after the copies of copy engines: ranks exchange ready signals and data signals.
#include "kernels.h"

#include "tutti/device/cuda/move.h"
#include "tutti/device/cuda/sequence.h"

namespace tutti::copy_kernels {
namespace {

using device::Connections;

/// Waits until `has_come`; false if the wait was ended.
template <class HasCome>
__device__ __forceinline__ bool wait(const tutti_cuda_launch& launch, uint32_t rank, HasCome&& has_come) {
  device::Waits waits(launch);
  for (uint32_t polls = 1; !has_come(); ++polls) {
    if (polls % device::kPollsPerLook == 0) waits.look(rank);
    if (waits.is_stopped()) return false;
  }
  return true;
}

__device__ __forceinline__ bool wait_open(const tutti_cuda_launch& launch, const Connections& connections,
                                          uint32_t rank, uint32_t number) {
  device::ReadySignal ready{};
  const bool came = wait(launch, rank, [&] {
    ready = connections.ready_signal_of(rank);
    return ready.is_of(number);
  });
  if (!came || ready.place == launch.place) return came;
  device::give_up(launch.control, rank, TUTTI_MISMATCH);
  return false;
}

/// A lane for each rank. The sequence's `safe` says to part() that all went well.
__global__ void __launch_bounds__(kWarp) meet(const __grid_constant__ tutti_cuda_launch launch) {
  const uint32_t rank = threadIdx.x;
  const Connections connections(launch, 0);
  const uint32_t number = device::load_sequence(launch.sequences).next + launch.cut.messages;
  if ((launch.copies.senders >> rank & 1) != 0) connections.signal_ready(rank, number);
  bool is_open = true;
  if ((launch.copies.receivers >> rank & 1) != 0) is_open = wait_open(launch, connections, rank, number);
  const bool all_open = __all_sync(0xffffffffu, is_open) != 0;
  if (rank == 0 && all_open) launch.sequences->safe = number;
}

__global__ void __launch_bounds__(kWarp) part(const __grid_constant__ tutti_cuda_launch launch) {
  const uint32_t rank = threadIdx.x;
  const Connections connections(launch, 0);
  const tutti_cuda_sequence sequence = device::load_sequence(launch.sequences);
  const uint32_t number = sequence.next + launch.cut.messages;
  if (sequence.safe == number) {
    if ((launch.copies.receivers >> rank & 1) != 0) {
      __threadfence_system();
      device::store_relaxed(&connections.mailbox_at(rank)->tail, number);
    }
    if ((launch.copies.senders >> rank & 1) != 0) {
      const uint32_t* const tail = &connections.mailbox_of(rank)->tail;
      wait(launch, rank, [&] { return device::load_acquire(tail) == number; });
    }
  }
  __syncwarp();
  if (rank == 0) launch.sequences->next = number;
}

template <class T>
__global__ void __launch_bounds__(kThreads) keep(const __grid_constant__ tutti_cuda_launch launch) {
  device::OperandsOf<1> operands;
  operands.from[0] = launch.input + launch.copies.own_from;
  operands.to[0] = launch.output + launch.copies.own_to;
  operands.from_count = operands.to_count = 1;
  operands.scaled = device::kNone;
  operands.divisor = 0;
  device::move_slice<T, device::Sum>(operands, launch.block_bytes, blockIdx.x * blockDim.x + threadIdx.x,
                                     gridDim.x * blockDim.x, 0);
}

}  // namespace

const void* const kMeet = reinterpret_cast<const void*>(&meet);
const void* const kPart = reinterpret_cast<const void*>(&part);
const void* const kKeepBytes = reinterpret_cast<const void*>(&keep<uint8_t>);
const void* const kKeepWords = reinterpret_cast<const void*>(&keep<uint32_t>);
const void* const kKeepLongs = reinterpret_cast<const void*>(&keep<uint64_t>);

}  // namespace tutti::copy_kernels
