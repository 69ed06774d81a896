// SPDX-License-Identifier: Apache-2.0
// The rules of tutti/plugin/plan.h about strands and waits that a plan keeps or breaks by itself.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "program/plan.h"

namespace tutti::program {
namespace {

Status invalid(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

class StrandChecker {
 public:
  StrandChecker(const tutti_plan& plan, std::optional<uint32_t>* at)
      : plan_(plan), at_(at), strand_of_(plan.step_count, 0), repeat_of_(plan.step_count, kNone) {}

  Status check() {
    TUTTI_TRY(check_division());
    TUTTI_TRY(check_repeats());
    TUTTI_TRY(check_waits());
    return plan_.strand_count > 1 ? check_connections() : Status();
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint64_t kMaxUses = uint64_t{1} << 22;  // uses of connections that are looked at
  struct Use {
    uint32_t strand;
    uint32_t step;
  };

  Status wrong(uint32_t step, std::string text) {
    if (at_ != nullptr) *at_ = step;
    return invalid(std::move(text));
  }

  /// The strands are all steps, in order.
  Status check_division() {
    if (plan_.strand_count > 0 && plan_.strands == nullptr) return invalid("strands: null, but strand_count is not 0");
    if (plan_.wait_count > 0 && plan_.waits == nullptr) return invalid("waits: null, but wait_count is not 0");
    if (plan_.strand_count > kMaxStrands) {
      return invalid(fmt::format("strand_count: {} is not below {}", plan_.strand_count, kMaxStrands + 1));
    }
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.strand_count; ++i) {
      const tutti_plan_strand& strand = plan_.strands[i];
      const auto no = [&](std::string text) { return invalid(fmt::format("strand {}: {}", i, text)); };
      if (strand.first_step != end) return no(fmt::format("begins at step {}, not at step {}", strand.first_step, end));
      if (strand.step_count == 0) return no("has no step");
      end += strand.step_count;
      if (end > plan_.step_count) return no(fmt::format("ends at step {} of only {}", end, plan_.step_count));
      std::fill_n(strand_of_.begin() + strand.first_step, strand.step_count, i);
    }
    if (plan_.strand_count == 0 || end == plan_.step_count) return {};
    return invalid(fmt::format("strands: have {} steps of {}", end, plan_.step_count));
  }

  Status check_repeats() {
    for (uint32_t i = 0; i < plan_.repeat_count; ++i) {
      const tutti_plan_repeat& repeat = plan_.repeats[i];
      std::fill_n(repeat_of_.begin() + repeat.first_step, repeat.step_count, i);
      const uint32_t first = strand_of_[repeat.first_step];
      const uint32_t last = strand_of_[repeat.first_step + repeat.step_count - 1];
      if (first == last) continue;
      return wrong(repeat.first_step,
                   fmt::format("repeat {}: the body has steps of strands {} and {}", i, first, last));
    }
    return {};
  }

  Status check_waits() {
    uint64_t waits = 0;
    for (uint32_t i = 0; i < plan_.wait_count; ++i) {
      const tutti_plan_wait& wait = plan_.waits[i];
      if (wait.step >= plan_.step_count) {
        return invalid(fmt::format("wait {}: step {} is not below {}", i, wait.step, plan_.step_count));
      }
      if (i > 0) TUTTI_TRY(check_ascent(plan_.waits[i - 1], wait));
      const auto no = [&](std::string text) {
        return wrong(wait.step, fmt::format("step {}: after: {}", wait.step, text));
      };
      if (wait.after >= plan_.step_count) {
        return no(fmt::format("step {} is not below {}", wait.after, plan_.step_count));
      }
      if (strand_of_[wait.step] == strand_of_[wait.after]) {
        return no(fmt::format("step {} is of the same strand", wait.after));
      }
      waits += rounds_of(wait);
      if (waits > kMaxWaits) return no(fmt::format("the waits of all rounds are more than {}", kMaxWaits));
      const uint32_t mine = repeat_of_[wait.step];
      const uint32_t theirs = repeat_of_[wait.after];
      if (mine == kNone || theirs == kNone || plan_.repeats[mine].rounds == plan_.repeats[theirs].rounds) continue;
      return no(fmt::format("step {} has {} rounds, and the step that waits has {}", wait.after,
                            plan_.repeats[theirs].rounds, plan_.repeats[mine].rounds));
    }
    return {};
  }

  Status check_ascent(const tutti_plan_wait& before, const tutti_plan_wait& wait) {
    if (std::pair(before.step, before.after) < std::pair(wait.step, wait.after)) return {};
    return wrong(wait.step, fmt::format("step {}: after: step {} follows step {} of step {}; waits must ascend",
                                        wait.step, wait.after, before.after, before.step));
  }

  /// Waits that a wait is with the repeats written out.
  uint32_t rounds_of(const tutti_plan_wait& wait) const {
    const bool both = repeat_of_[wait.step] != kNone && repeat_of_[wait.after] != kNone;
    return both ? plan_.repeats[repeat_of_[wait.step]].rounds : 1;
  }

  Status check_connections() {
    for (uint32_t step = 0; step < plan_.step_count; ++step) {
      const tutti_plan_step& of = plan_.steps[step];
      const tutti_plan_growth growth = plan_.growths == nullptr ? tutti_plan_growth{} : plan_.growths[step];
      TUTTI_TRY(check_peers(step, {plan_.peers + of.recv_begin, of.recv_count}, growth.recv_rank, receivers_, false));
      TUTTI_TRY(check_peers(step, {plan_.peers + of.send_begin, of.send_count}, growth.send_rank, senders_, true));
    }
    return {};
  }

  using Uses = std::unordered_map<uint32_t, Use>;  // by the rank at the other end

  Status check_peers(uint32_t step, std::span<const tutti_plan_peer> peers, uint32_t growth, Uses& uses, bool sends) {
    const uint32_t rounds = repeat_of_[step] == kNone ? 1 : plan_.repeats[repeat_of_[step]].rounds;
    const uint32_t different = plan_.rank_count / std::gcd(plan_.rank_count, growth);  // 1 without growth
    const uint32_t visited = std::min(rounds, different);
    looked_at_ += uint64_t{visited} * peers.size();
    if (looked_at_ > kMaxUses) {
      return {Code::kUnsupported, fmt::format("strands: more than {} peers of all rounds are too many", kMaxUses)};
    }
    for (const tutti_plan_peer& peer : peers) {
      for (uint32_t round = 0; round < visited; ++round) {
        const auto rank = static_cast<uint32_t>((peer.rank + uint64_t{round} * growth) % plan_.rank_count);
        const auto [use, is_new] = uses.try_emplace(rank, Use{strand_of_[step], step});
        if (is_new || use->second.strand == strand_of_[step]) continue;
        return wrong(step, shared_text(step, use->second, rank, sends));
      }
    }
    return {};
  }

  std::string shared_text(uint32_t step, const Use& use, uint32_t rank, bool sends) const {
    if (sends) {
      return fmt::format(
          "step {}: send: strand {} sends to rank {}, and strand {} does, too (step {}); one strand sends "
          "all messages to a rank",
          step, strand_of_[step], rank, use.strand, use.step);
    }
    return fmt::format(
        "step {}: recv: strand {} receives from rank {}, and strand {} does, too (step {}); one strand "
        "receives all messages from a rank",
        step, strand_of_[step], rank, use.strand, use.step);
  }

  const tutti_plan& plan_;
  std::optional<uint32_t>* at_;
  std::vector<uint32_t> strand_of_;  ///< by step
  std::vector<uint32_t> repeat_of_;  ///< by step; kNone outside of all repeats
  Uses receivers_;
  Uses senders_;
  uint64_t looked_at_ = 0;
};

}  // namespace

Status validate_strands(const tutti_plan& plan, std::optional<uint32_t>* at) {
  if (plan.strand_count == 0 && plan.wait_count == 0) return {};
  return StrandChecker(plan, at).check();
}

}  // namespace tutti::program
