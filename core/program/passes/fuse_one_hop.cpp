// SPDX-License-Identifier: Apache-2.0
#include "program/passes/fuse_one_hop.h"

#include <algorithm>
#include <span>

namespace tutti::program {
namespace {

/// Goes through the steps; each returns false where the program is not of one hop.
class Finder {
 public:
  explicit Finder(const Program& program) : program_(program) {}

  bool run() {
    // With one message at most on a connection, each peer is met once in each direction.
    if (program_.chunks != 1 || program_.messages != 1 || program_.stages != 1) return false;
    for (const tutti_program_step& step : program_.steps) {
      // Received data must have arrived before the step: in this form it would arrive after it.
      if ((step.flags & TUTTI_CUDA_STEP_AFTER) != 0 && hop_.recv_count > 0) return false;
      if (uses_scratch(step)) return false;
      if (!(exchanges(step) ? exchange(step) : fold(step))) return false;
    }
    return finish();
  }
  const tutti_cuda_one_hop& hop() const { return hop_; }

 private:
  static bool uses_scratch(const tutti_program_step& step) {
    return step.source == TUTTI_BUFFER_SCRATCH || step.destination == TUTTI_BUFFER_SCRATCH ||
           (step.flags & TUTTI_STEP_TO_SCRATCH) != 0;
  }
  /// Sends and own copies first, then receives.
  bool exchange(const tutti_program_step& step) {
    const bool keeps = step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
    return send(step) && (!keeps || keep(step)) && receive(step, true);
  }

  bool fold(const tutti_program_step& step) {
    const bool is_final = (step.flags & TUTTI_STEP_FINAL) != 0;
    const bool has_own = step.source != TUTTI_BUFFER_NONE;
    if (step.recv_count == 0) {
      return !is_final && send(step) && (step.destination == TUTTI_BUFFER_NONE || keep(step));
    }
    if (step.send_count > 0 || step.destination == TUTTI_BUFFER_NONE) return false;  // it passes something on
    if (step.recv_count == 1 && !has_own && !is_final) return receive(step, false);
    if (hop_.recv_count > 0 || hop_.own == TUTTI_CUDA_OWN_KEPT) return false;
    if (has_own && !take_own(step, TUTTI_CUDA_OWN_FOLDED)) return false;
    hop_.folds = 1;
    hop_.is_final = is_final ? 1 : 0;
    hop_.own_position = static_cast<uint8_t>(step.own_position);
    hop_.own_to = step.destination_block;
    return receive(step, false);
  }

  bool keep(const tutti_program_step& step) {
    if (hop_.folds != 0 || !take_own(step, TUTTI_CUDA_OWN_KEPT)) return false;
    hop_.own_to = step.destination_block;
    return true;
  }
  bool take_own(const tutti_program_step& step, uint8_t what) {
    if (hop_.own != TUTTI_CUDA_OWN_UNUSED || step.source != TUTTI_BUFFER_INPUT) return false;
    hop_.own = what;
    hop_.own_from = step.source_block;
    return true;
  }

  bool send(const tutti_program_step& step) {
    if (step.send_count == 0) return true;
    if (step.source != TUTTI_BUFFER_INPUT) return false;
    for (const tutti_program_peer& to : program_.send(step)) {
      if (hop_.send_count == TUTTI_CUDA_MAX_HOPS) return false;
      hop_.send_ranks[hop_.send_count] = static_cast<uint8_t>(to.rank);
      const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
      hop_.sends[hop_.send_count++] = {nullptr, scatters ? to.block : step.source_block};
    }
    return true;
  }

  bool receive(const tutti_program_step& step, bool by_peer) {
    if (step.recv_count > 0 && hop_.folds != 0 && hop_.recv_count > 0) return false;
    for (const tutti_program_peer& from : program_.recv(step)) {
      if (hop_.recv_count == TUTTI_CUDA_MAX_HOPS) return false;
      hop_.recv_ranks[hop_.recv_count] = static_cast<uint8_t>(from.rank);
      hop_.receives[hop_.recv_count++] = {nullptr, by_peer ? from.block : step.destination_block};
    }
    return true;
  }

  bool finish() {
    const std::span sends(hop_.sends, hop_.send_count);
    if (hop_.own == TUTTI_CUDA_OWN_UNUSED && !sends.empty()) hop_.own_from = sends[0].at;
    hop_.scatters = std::any_of(sends.begin(), sends.end(), [&](const auto& to) { return to.at != hop_.own_from; });
    return hop_.send_count > 0 || hop_.recv_count > 0;
  }

  const Program& program_;
  tutti_cuda_one_hop hop_{};
};

}  // namespace

std::optional<tutti_cuda_one_hop> one_hop(const Program& program) {
  Finder finder(program);
  if (!finder.run()) return std::nullopt;
  return finder.hop();
}

void set_one_hop(const Program& program, tutti_cuda_launch& launch) {
  launch.one_hop = {};
  constexpr uint64_t kThreadBytes = 8;
  if (launch.program_count != 1 || launch.cut.messages != 1) return;
  if (launch.cut.part > launch.thread_count * kThreadBytes) return;
  auto hop = one_hop(program);
  if (!hop) return;
  hop->own_from *= launch.block_bytes;
  hop->own_to *= launch.block_bytes;
  for (uint32_t i = 0; i < hop->send_count; ++i) {
    hop->sends[i] = {launch.links[hop->send_ranks[i]].to, hop->sends[i].at * launch.block_bytes};
  }
  const std::span sends(hop->sends, hop->send_count);
  hop->is_aligned =
      hop->own_from % 8 == 0 && std::all_of(sends.begin(), sends.end(), [](const auto& to) { return to.at % 8 == 0; });
  for (uint32_t i = 0; i < hop->recv_count; ++i) {
    // Only read, but sends use the same type.
    hop->receives[i] = {const_cast<uint8_t*>(launch.links[hop->recv_ranks[i]].from),
                        hop->receives[i].at * launch.block_bytes};
  }
  launch.one_hop = *hop;
}

}  // namespace tutti::program
