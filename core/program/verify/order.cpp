// SPDX-License-Identifier: Apache-2.0
#include "program/verify/order.h"

#include <algorithm>

#include "program/peer_pool.h"
#include "program/repeat.h"

namespace tutti::program {
namespace {

bool has(const tutti_plan_step& step, uint8_t flag) {
  return (step.flags & flag) != 0;
}

/// Gives all numbers of a plan without growing ranks or blocks their new values.
class Renumbering {
 public:
  Renumbering(const Plan& plan, std::span<const uint32_t> positions)
      : plan_(plan), positions_(positions), out_(plan), pool_(out_.peers) {}

  Result<Plan> run() {
    out_.rank = positions_[plan_.rank];
    out_.peers.clear();
    for (size_t s = 0; s < plan_.steps.size(); ++s) TUTTI_TRY(renumber(plan_.steps[s], out_.steps[s]));
    return std::move(out_);
  }

 private:
  bool has_blocks(uint32_t buffer) const {
    return (buffer == TUTTI_BUFFER_INPUT && plan_.input_blocks > 1) ||
           (buffer == TUTTI_BUFFER_OUTPUT && plan_.output_blocks > 1);
  }
  uint32_t chunk(uint32_t buffer, uint32_t old) const {
    if (!has_blocks(buffer)) return old;
    return positions_[old / plan_.chunks] * plan_.chunks + old % plan_.chunks;
  }

  Status renumber(const tutti_plan_step& old, tutti_plan_step& step) {
    const bool gathers = has(old, TUTTI_STEP_GATHER);
    const bool scatters = has(old, TUTTI_STEP_SCATTER);
    const bool blocks =
        has_blocks(old.source) || has_blocks(old.destination) || (gathers && has_blocks(gather_buffer_of(old)));
    if (plan_.range(old).count > 1 && blocks) {
      return {Code::kUnsupported, "messages have chunks of several blocks, and the ranks do not ascend along the ring"};
    }
    step.source_chunk = chunk(old.source, old.source_chunk);
    step.destination_chunk = chunk(old.destination, old.destination_chunk);
    const bool folds = !gathers && !scatters;
    TUTTI_TRY(range(plan_.recv(old), gathers ? gather_buffer_of(old) : 0u, folds, step.recv_begin));
    return range(plan_.send(old), scatters ? uint32_t{old.source} : 0u, folds, step.send_begin);
  }

  Status range(std::span<const tutti_plan_peer> peers, uint32_t buffer, bool folds, uint16_t& begin) {
    moved_.clear();
    for (const tutti_plan_peer& peer : peers) moved_.push_back({positions_[peer.rank], chunk(buffer, peer.chunk)});
    const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
    if (folds) std::sort(moved_.begin(), moved_.end(), ascending);
    return pool_.intern(moved_, begin);
  }

  const Plan& plan_;
  std::span<const uint32_t> positions_;
  Plan out_;
  PeerPool pool_;
  std::vector<tutti_plan_peer> moved_;
};

/// Whether a repeat changes ranks, or the blocks of a buffer with one block per rank.
bool grows_ranks(const Plan& plan) {
  const bool blocks = plan.input_blocks > 1 || plan.output_blocks > 1;
  return std::any_of(plan.growths.begin(), plan.growths.end(), [&](const tutti_plan_growth& growth) {
    return growth.recv_rank != 0 || growth.send_rank != 0 ||
           (blocks && (growth.source_chunk != 0 || growth.destination_chunk != 0 || growth.recv_chunk != 0 ||
                       growth.send_chunk != 0));
  });
}

}  // namespace

Result<std::vector<uint32_t>> positions_on_cycle(uint32_t rank_count, const PlanSource& source) {
  std::vector<uint32_t> positions(rank_count, rank_count);
  uint32_t rank = 0;
  for (uint32_t position = 0; position < rank_count; ++position) {
    if (positions[rank] != rank_count) break;
    positions[rank] = position;
    TUTTI_ASSIGN(const Plan plan, source(rank));
    const auto sends = [](const tutti_plan_step& step) { return step.send_count > 0; };
    const auto first = std::find_if(plan.steps.begin(), plan.steps.end(), sends);
    if (first == plan.steps.end()) break;
    rank = plan.peers[first->send_begin].rank;
  }
  const bool all = std::find(positions.begin(), positions.end(), rank_count) == positions.end();
  if (all && rank == 0) return positions;
  return Status(Code::kUnsupported, "the first messages of the ranks do not go around one ring");
}

Result<Plan> renumbered(const Plan& plan, std::span<const uint32_t> positions) {
  if (!grows_ranks(plan)) return Renumbering(plan, positions).run();
  TUTTI_ASSIGN(const Plan written_out, unroll(plan));
  return Renumbering(written_out, positions).run();
}

}  // namespace tutti::program
