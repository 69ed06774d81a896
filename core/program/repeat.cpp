// SPDX-License-Identifier: Apache-2.0
#include "program/repeat.h"

#include <algorithm>
#include <utility>

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

/// The numbers of a plan's steps in the written-out plan.
class WrittenOut {
 public:
  explicit WrittenOut(const Plan& plan) {
    uint32_t next = 0;
    size_t repeat = 0;
    for (uint32_t step = 0; step < plan.steps.size();) {
      const bool begins = repeat < plan.repeats.size() && plan.repeats[repeat].first_step == step;
      const uint32_t count = begins ? plan.repeats[repeat].step_count : 1;
      const uint32_t rounds = begins ? plan.repeats[repeat].rounds : 1;
      for (uint32_t i = 0; i < count; ++i) steps_.push_back({next + i, count, rounds, begins});
      next += count * rounds;
      step += count;
      repeat += begins ? 1 : 0;
    }
  }

  bool repeats(uint32_t step) const { return steps_[step].repeats; }
  uint32_t rounds(uint32_t step) const { return steps_[step].rounds; }
  uint32_t at(uint32_t step, uint32_t round) const { return steps_[step].first + round * steps_[step].stride; }
  uint32_t first(uint32_t step) const { return steps_[step].first; }

 private:
  struct Step {
    uint32_t first;   ///< in round 0
    uint32_t stride;  ///< from round to round
    uint32_t rounds;
    bool repeats;
  };
  std::vector<Step> steps_;
};

/// Writes the steps of a plan out, one after the other.
class Unroller {
 public:
  explicit Unroller(const Plan& plan) : plan_(plan), out_(plan), pool_(out_.peers) {
    out_.steps.clear();
    out_.peers.clear();
    out_.ranges.clear();
    out_.repeats.clear();
    out_.growths.clear();
    out_.waits.clear();
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
    write_strands();
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

  void write_strands() {
    if (plan_.strands.empty()) return;
    const WrittenOut numbers(plan_);
    for (size_t i = 0; i < plan_.strands.size(); ++i) {
      const uint32_t end = plan_.strands[i].first_step + plan_.strands[i].step_count;
      const uint32_t first = numbers.first(plan_.strands[i].first_step);
      const uint32_t after = end < plan_.steps.size() ? numbers.first(end) : static_cast<uint32_t>(out_.steps.size());
      out_.strands[i] = {first, after - first};
    }
    for (const tutti_plan_wait& wait : plan_.waits) {
      const bool both = numbers.repeats(wait.step) && numbers.repeats(wait.after);
      const uint32_t rounds = both ? numbers.rounds(wait.step) : 1;
      for (uint32_t round = 0; round < rounds; ++round) {
        const uint32_t of_after = both ? round : numbers.rounds(wait.after) - 1;
        out_.waits.push_back({numbers.at(wait.step, round), numbers.at(wait.after, of_after)});
      }
    }
    const auto below = [](const tutti_plan_wait& a, const tutti_plan_wait& b) {
      return std::pair(a.step, a.after) < std::pair(b.step, b.after);
    };
    std::sort(out_.waits.begin(), out_.waits.end(), below);
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
         bytes_of(plan.repeats) + bytes_of(plan.growths) + bytes_of(plan.strands) + bytes_of(plan.waits);
}

}  // namespace tutti::program
