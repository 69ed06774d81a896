// SPDX-License-Identifier: Apache-2.0
// Data movement of the Simple wire on the host: one fused pass over all sources and destinations.
#include <sys/uio.h>

#include <memory>

#include "tutti/device/host/team.h"

namespace tutti::device {
namespace {

constexpr uint32_t kMaxFan = 64;

/// Reads the peer's memory through the kernel.
bool read_remote(const tutti_connection& from, uint64_t address, void* to, uint64_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    iovec local{at, bytes};
    iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(from.peer_process, &local, 1, &remote, 1, 0);
    if (got <= 0) return false;
    at += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

/// The address at which data of `from` can be read: its slot, the sender's memory, or `scratch` after a read through
/// the kernel. Null if this read failed.
const void* received(const tutti_connection& from, uint64_t bytes, uint64_t offset, void* scratch) {
  const SimpleHeader& header = Simple::header(from);
  if (header.address == 0) return Simple::payload(from) + offset;
  if ((from.flags & TUTTI_CONNECTION_SHARED_SPACE) != 0) return reinterpret_cast<const void*>(header.address);
  return read_remote(from, header.address, scratch, bytes) ? scratch : nullptr;
}

/// Memory for slices read from other processes, one per operand; kept per thread, so that only the first call pays for
/// it.
uint8_t* scratch_for(uint32_t index, uint64_t bytes) {
  struct Scratch {
    std::unique_ptr<uint8_t[]> memory;
    uint64_t bytes = 0;
  };
  thread_local Scratch scratch[kMaxFan];
  Scratch& own = scratch[index];
  if (own.bytes < bytes) {
    own.memory = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    own.bytes = bytes;
  }
  return own.memory.get();
}

/// Offers `address` to the receiver instead of a payload, if it can read it and the slice is long enough to pay.
bool post_direct(const tutti_work& work, tutti_connection& to, const uint8_t* address, uint64_t bytes) {
  constexpr uint32_t kReadable = TUTTI_CONNECTION_SHARED_SPACE | TUTTI_CONNECTION_REMOTE_READ;
  SimpleHeader& header = Simple::header(to);
  header.address = 0;
  if (address == nullptr || work.direct_minimum == 0 || bytes < work.direct_minimum || (to.flags & kReadable) == 0)
    return false;
  header.address = reinterpret_cast<uint64_t>(address);
  to.direct_until = to.next_end;
  return true;
}

}  // namespace

int32_t HostTeam::move_simple(tutti_work& work, const Operands& operands) {
  const void* sources[kMaxFan + 1];
  void* destinations[kMaxFan + 1];
  ReduceCall call{sources, 0, 0, destinations, operands.elements, work.scalar, -1, operands.final ? work.divisor : 0};
  const uint64_t bytes = operands.elements * work.element_bytes;

  const bool copied = operands.own == nullptr && operands.recv_count == 1 && call.divisor == 0;
  for (uint32_t i = 0; i <= operands.recv_count; ++i) {
    if (i == operands.own_position && operands.own != nullptr) {
      if (operands.scaled) call.scaled_source = static_cast<int32_t>(call.source_count);
      sources[call.source_count++] = operands.own;
    }
    if (i == operands.recv_count) break;
    // A pure copy to the output can be read from the other process straight into place.
    void* scratch = nullptr;
    const tutti_connection& from = *operands.recv[i];
    if (Simple::header(from).address != 0) {
      scratch = copied && operands.output != nullptr ? operands.output : scratch_for(i, bytes);
    }
    sources[call.source_count] = received(from, bytes, operands.offset, scratch);
    if (sources[call.source_count++] == nullptr) return TUTTI_REMOTE;
  }

  // Memory of this rank that holds the value: the output to which it is written, or the own contribution if it is
  // unchanged.
  const bool untouched = operands.recv_count == 0 && call.scaled_source < 0 && call.divisor == 0;
  const uint8_t* kept = operands.output != nullptr ? operands.output : untouched ? operands.own : nullptr;
  const bool in_place = call.source_count == 1 && sources[0] == operands.output;
  if (operands.output != nullptr && !(in_place && call.scaled_source < 0 && call.divisor == 0)) {
    destinations[call.destination_count++] = operands.output;
  }
  for (uint32_t i = 0; i < operands.send_count; ++i) {
    tutti_connection& to = *operands.send[i];
    if (!post_direct(work, to, operands.stable ? kept : nullptr, bytes))
      destinations[call.destination_count++] = Simple::payload(to) + operands.offset;
  }
  if (call.destination_count > 0) select_reduce(work.data_type, work.reduce_op)(call);
  return TUTTI_OK;
}

}  // namespace tutti::device
