// SPDX-License-Identifier: Apache-2.0
#include "program/repeat.h"

#include <algorithm>

#include "program/peer_pool.h"

namespace tutti::program {
namespace {

uint32_t grown(uint32_t first, uint32_t growth, uint32_t round, uint32_t modulus) {
  return growth == 0 ? first : static_cast<uint32_t>((first + uint64_t{growth} * round) % modulus);
}

/// Appends peers with their growth added, in ascending order if the step folds.
void append(std::span<const tutti_plan_peer> peers, uint32_t rank_growth, uint32_t ranks, uint32_t chunk_growth,
            uint32_t chunks, uint32_t round, bool folds, std::vector<tutti_plan_peer>& into) {
  const auto begin = static_cast<ptrdiff_t>(into.size());
  for (const tutti_plan_peer& peer : peers) {
    into.push_back({grown(peer.rank, rank_growth, round, ranks), grown(peer.chunk, chunk_growth, round, chunks)});
  }
  const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
  if (folds) std::sort(into.begin() + begin, into.end(), ascending);
}

/// Writes the steps of a plan out, one after the other.
class Unroller {
 public:
  explicit Unroller(const Plan& plan) : plan_(plan), out_(plan), pool_(out_.peers) {
    out_.steps.clear();
    out_.peers.clear();
    out_.ranges.clear();
    out_.repeats.clear();
    out_.growths.clear();
  }

  Result<Plan> run() {
    out_.steps.reserve(unrolled_steps(plan_));
    uint32_t step = 0;
    for (const tutti_plan_repeat& repeat : plan_.repeats) {
      for (; step < repeat.first_step; ++step) TUTTI_TRY(add({step, 0}));
      for (uint32_t round = 0; round < repeat.rounds; ++round) {
        for (uint32_t i = 0; i < repeat.step_count; ++i) TUTTI_TRY(add({step + i, round}));
      }
      step += repeat.step_count;
    }
    for (; step < plan_.steps.size(); ++step) TUTTI_TRY(add({step, 0}));
    return std::move(out_);
  }

  Result<Plan> run(uint32_t count) {
    for (uint32_t index = 0; index < count; ++index) TUTTI_TRY(add(rolled_step(plan_, index)));
    return std::move(out_);
  }

 private:
  Status add(RolledStep place) {
    StepInRound made = in_round(plan_, place);
    const std::span peers(made.peers);
    TUTTI_TRY(pool_.intern(peers.subspan(made.step.recv_begin, made.step.recv_count), made.step.recv_begin));
    TUTTI_TRY(pool_.intern(peers.subspan(made.step.send_begin, made.step.send_count), made.step.send_begin));
    out_.steps.push_back(made.step);
    if (!plan_.ranges.empty()) out_.ranges.push_back(plan_.ranges[place.step]);
    return {};
  }

  const Plan& plan_;
  Plan out_;
  PeerPool pool_;
};

template <class T>
uint64_t bytes_of(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}

}  // namespace

StepInRound in_round(const Plan& plan, RolledStep place) {
  const tutti_plan_step& step = plan.steps[place.step];
  const tutti_plan_growth growth = plan.growths.empty() ? tutti_plan_growth{} : plan.growths[place.step];
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
  const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
  StepInRound made{step, {}};
  made.step.source_chunk = grown(step.source_chunk, growth.source_chunk, place.round, plan.chunks_of(step.source));
  made.step.destination_chunk =
      grown(step.destination_chunk, growth.destination_chunk, place.round, plan.chunks_of(step.destination));
  append(plan.recv(step), growth.recv_rank, plan.rank_count, growth.recv_chunk, plan.chunks_of(gather_buffer_of(step)),
         place.round, !gathers && !scatters, made.peers);
  append(plan.send(step), growth.send_rank, plan.rank_count, growth.send_chunk, plan.chunks_of(step.source),
         place.round, !gathers && !scatters, made.peers);
  made.step.recv_begin = 0;
  made.step.send_begin = step.recv_count;
  return made;
}

Result<Plan> unroll(Plan plan) {
  if (plan.repeats.empty()) return plan;
  return Unroller(plan).run();
}

Result<Plan> unroll_first(const Plan& plan, uint64_t count) {
  return Unroller(plan).run(static_cast<uint32_t>(std::min(count, unrolled_steps(plan))));
}

uint64_t unrolled_steps(const Plan& plan) {
  uint64_t steps = plan.steps.size();
  for (const tutti_plan_repeat& repeat : plan.repeats) steps += uint64_t{repeat.step_count} * (repeat.rounds - 1);
  return steps;
}

RolledStep rolled_step(const Plan& plan, uint32_t index) {
  uint32_t before = 0;  // steps of later rounds of the repeats before
  for (const tutti_plan_repeat& repeat : plan.repeats) {
    const uint32_t first = repeat.first_step + before;
    if (index < first) break;
    const uint32_t in_body = index - first;
    if (in_body < repeat.step_count * repeat.rounds) {
      return {repeat.first_step + in_body % repeat.step_count, in_body / repeat.step_count};
    }
    before += repeat.step_count * (repeat.rounds - 1);
  }
  return {index - before, 0};
}

uint64_t size_bytes(const Plan& plan) {
  return sizeof(tutti_plan) + bytes_of(plan.steps) + bytes_of(plan.peers) + bytes_of(plan.ranges) +
         bytes_of(plan.repeats) + bytes_of(plan.growths);
}

}  // namespace tutti::program
