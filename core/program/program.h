// SPDX-License-Identifier: Apache-2.0
// A program: a plan in the form that executors and kernels run (tutti/plugin/program.h). No limit of a device holds for
// it. Launches of kernels have a packed copy (backend/cuda/launch_builder.h).
#pragma once

#include <span>
#include <vector>

#include "tutti/plugin/program.h"

namespace tutti::program {

/// Owning form of a tutti_program, with the numbers that kernels need in addition.
struct Program {
  uint32_t chunks = 1;  ///< per block and loop
  uint32_t input_blocks = 1;
  uint32_t output_blocks = 1;
  uint32_t scratch_chunks = 0;
  uint32_t message_chunks = 1;  ///< chunks of the longest message in the plans of all ranks
  uint32_t messages = 0;        ///< per loop on the busiest connection; after even_messages(), of any rank
  uint32_t stages = 1;          ///< 1: loops do not overlap
  uint32_t lag = 0;             ///< the largest lag of any message of any rank
  /// Messages that a connection must have room for although loops do not overlap; 0: a chunk may fill as many slots as
  /// the layout allows. Set by backend::lower_channels().
  uint32_t room = 0;
  uint32_t strand_count = 0;  ///< of a program for kernels (lower_strands.h); 0: one list of steps
  std::vector<tutti_program_step> steps;
  std::vector<tutti_program_peer> peers;
  std::vector<tutti_plan_range> ranges;  ///< one for each step; empty: every step has one chunk

  /// The same program as the struct of protocols; valid as long as this program is neither changed nor moved.
  tutti_program view() const;
  /// The peers of a step of this program, from which it receives and to which it sends.
  std::span<const tutti_program_peer> recv(const tutti_program_step& step) const {
    return std::span(peers).subspan(step.recv_begin, step.recv_count);
  }
  std::span<const tutti_program_peer> send(const tutti_program_step& step) const {
    return std::span(peers).subspan(step.send_begin, step.send_count);
  }
  std::span<tutti_program_peer> recv(const tutti_program_step& step) {
    return std::span(peers).subspan(step.recv_begin, step.recv_count);
  }
  std::span<tutti_program_peer> send(const tutti_program_step& step) {
    return std::span(peers).subspan(step.send_begin, step.send_count);
  }
};

/// Whether a step of a plan or of a program exchanges messages. Else it folds.
template <class Step>
bool exchanges(const Step& step) {
  return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0;
}

/// The size of a scratch buffer on a GPU, in blocks as large as those of the input and the output.
inline uint32_t scratch_blocks(uint32_t scratch_chunks, uint32_t chunks) {
  return (scratch_chunks + chunks - 1) / chunks;
}

}  // namespace tutti::program
