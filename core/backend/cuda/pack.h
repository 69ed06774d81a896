// SPDX-License-Identifier: Apache-2.0
// Programs with the numbers that kernels read: of 8 bits in the small form, of 16 bits in the large form. The numbers
// are within the limits of the form (program::lower, is_large).
//
// Threads: any.
#pragma once

#include "program/program.h"
#include "tutti/plugin/cuda.h"

namespace tutti::backend {

template <class Packed>
Packed pack(const tutti_program_step& step) {
  using Number = decltype(Packed::source_chunk);
  const auto number = [](uint32_t value) { return static_cast<Number>(value); };
  return {step.source,
          step.destination,
          step.flags,
          number(step.own_position),
          number(step.source_block),
          number(step.source_chunk),
          number(step.destination_block),
          number(step.destination_chunk),
          number(step.recv_begin),
          number(step.recv_count),
          number(step.send_begin),
          number(step.send_count),
          number(step.stage),
          number(step.recv_stage)};
}

template <class Packed>
Packed pack(const tutti_program_peer& peer) {
  using Number = decltype(Packed::rank);
  const auto number = [](uint32_t value) { return static_cast<Number>(value); };
  return {number(peer.rank), number(peer.message),   number(peer.block),        number(peer.chunk),
          number(peer.lag),  number(peer.to_output), number(peer.output_block), number(peer.output_chunk)};
}

/// The counts that programs of both forms have.
template <class Packed>
Packed pack_head(const program::Program& program) {
  using Number = decltype(Packed::step_count);
  Packed packed{};
  packed.step_count = static_cast<Number>(program.steps.size());
  packed.chunks = static_cast<Number>(program.chunks);
  packed.messages = static_cast<Number>(program.messages);
  packed.peer_count = static_cast<Number>(program.peers.size());
  packed.stages = static_cast<Number>(program.stages);
  packed.lag = static_cast<Number>(program.lag);
  return packed;
}

}  // namespace tutti::backend
