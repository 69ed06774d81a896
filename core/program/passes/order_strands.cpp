// SPDX-License-Identifier: Apache-2.0
#include "program/passes/order_strands.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "program/connections.h"
#include "program/program.h"

namespace tutti::program {
namespace {

/// Runs the strands of all ranks beside each other through one loop, and notes the time of each step.
class Clocks {
 public:
  Clocks(std::span<const Plan> plans, const Connections& connections, uint64_t slots)
      : plans_(plans),
        connections_(connections),
        slots_(slots),
        sent_(connections.size()),
        received_(connections.size()),
        orders_(plans.size()) {
    for (uint32_t rank = 0; rank < plans.size(); ++rank) {
      first_of_.push_back(static_cast<uint32_t>(strands_.size()));
      done_.emplace_back(plans[rank].steps.size(), kNever);
      const auto add = [&](uint32_t first, uint32_t count) {
        strands_.push_back({.rank = rank, .step = first, .end = first + count});
      };
      for (const tutti_plan_strand& strand : plans[rank].strands) add(strand.first_step, strand.step_count);
      if (plans[rank].strands.empty()) add(0, static_cast<uint32_t>(plans[rank].steps.size()));
    }
    first_of_.push_back(static_cast<uint32_t>(strands_.size()));
  }

  void run() {
    for (size_t i = strands_.size(); i-- > 0;) ready_.push_back(static_cast<uint32_t>(i));
    while (!ready_.empty()) {
      const uint32_t strand = ready_.back();
      ready_.pop_back();
      while (advance(strands_[strand])) continue;
    }
  }

  bool ended() const { return std::all_of(strands_.begin(), strands_.end(), has_ended); }
  bool any_waits_for_slot() const {
    return std::any_of(strands_.begin(), strands_.end(), [](const Strand& strand) { return strand.waits == kSlot; });
  }
  Status deadlock(std::optional<StepPlace>* place) const;

  /// The parts of each rank in order of time, where no other strand separates the halves of a step.
  std::vector<StrandOrder> orders() {
    for (uint32_t rank = 0; rank < orders_.size(); ++rank) {
      const auto key = [&](const Part& part) {
        return std::tuple(part.time, part.sends, plans_[rank].strand_of(part.step));
      };
      std::vector<Part>& parts = orders_[rank].parts;
      std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return key(a) < key(b); });
      join(parts);
    }
    return std::move(orders_);
  }

 private:
  using Part = StrandOrder::Part;
  static constexpr uint32_t kNever = ~0u;
  enum Cause : uint8_t { kNothing, kMessage, kSlot, kStep };
  struct Strand {
    uint32_t rank = 0;
    uint32_t step = 0;
    uint32_t end = 0;
    uint32_t free = 0;         ///< the time at which the next part can begin
    bool second_half = false;  ///< the sends of a gather or scatter step are done
    Cause waits = kNothing;
    uint32_t waits_for = 0;  ///< a rank, or a step of this rank
  };

  static bool has_ended(const Strand& strand) { return strand.step == strand.end; }

  static void join(std::vector<Part>& parts) {
    std::vector<Part> joined;
    for (const Part& part : parts) {
      if (!joined.empty() && joined.back().step == part.step) {
        joined.back().receives = true;
      } else {
        joined.push_back(part);
      }
    }
    parts = std::move(joined);
  }

  /// Runs the next part of a strand; false if it must wait, or if there is none.
  bool advance(Strand& strand) {
    if (has_ended(strand)) return false;
    const tutti_plan_step& step = plans_[strand.rank].steps[strand.step];
    const bool is_exchange = exchanges(step);
    const bool only_receives = step.send_count == 0 && step.destination == TUTTI_BUFFER_NONE && step.recv_count > 0;
    const bool sends = !strand.second_half;
    const bool receives = !is_exchange || strand.second_half || only_receives || step.recv_count == 0;
    uint32_t time = strand.free;
    strand.waits = kNothing;
    if (sends && !(after_steps(strand, time) && after_slots(strand, step, time))) return false;
    if (receives && !after_messages(strand, step, time)) return false;
    if (receives) receive(strand, step, time);
    if (sends) send(strand, step, time);
    orders_[strand.rank].parts.push_back({strand.step, sends, receives, time});
    strand.free = time + 1;
    strand.second_half = !receives;
    if (receives) complete(strand, time);
    return true;
  }

  bool after_steps(Strand& strand, uint32_t& time) const {
    for (const tutti_plan_wait& wait : plans_[strand.rank].waits_of(strand.step)) {
      const uint32_t done = done_[strand.rank][wait.after];
      if (done == kNever) return block(strand, kStep, wait.after);
      time = std::max(time, done + 1);
    }
    return true;
  }

  bool after_slots(Strand& strand, const tutti_plan_step& step, uint32_t& time) const {
    for (uint32_t peer = step.send_begin; peer < step.send_begin + uint32_t{step.send_count}; ++peer) {
      const uint32_t connection = connections_.outgoing(strand.rank, peer);
      const size_t sent = sent_[connection].size();
      if (sent < slots_) continue;
      if (received_[connection].size() <= sent - slots_) return block(strand, kSlot, rank_of(strand, peer));
      time = std::max(time, received_[connection][sent - slots_] + 1);
    }
    return true;
  }

  bool after_messages(Strand& strand, const tutti_plan_step& step, uint32_t& time) const {
    for (uint32_t peer = step.recv_begin; peer < step.recv_begin + uint32_t{step.recv_count}; ++peer) {
      const uint32_t connection = connections_.incoming(strand.rank, peer);
      const size_t next = received_[connection].size();
      if (sent_[connection].size() <= next) return block(strand, kMessage, rank_of(strand, peer));
      time = std::max(time, sent_[connection][next] + 1);
    }
    return true;
  }

  static bool block(Strand& strand, Cause cause, uint32_t on) {
    strand.waits = cause;
    strand.waits_for = on;
    return false;
  }
  uint32_t rank_of(const Strand& strand, uint32_t peer) const { return plans_[strand.rank].peers[peer].rank; }

  void receive(const Strand& strand, const tutti_plan_step& step, uint32_t time) {
    for (uint32_t peer = step.recv_begin; peer < step.recv_begin + uint32_t{step.recv_count}; ++peer) {
      received_[connections_.incoming(strand.rank, peer)].push_back(time);
      wake(rank_of(strand, peer), kSlot, strand.rank);
    }
  }

  void send(const Strand& strand, const tutti_plan_step& step, uint32_t time) {
    for (uint32_t peer = step.send_begin; peer < step.send_begin + uint32_t{step.send_count}; ++peer) {
      sent_[connections_.outgoing(strand.rank, peer)].push_back(time);
      wake(rank_of(strand, peer), kMessage, strand.rank);
    }
  }

  void complete(Strand& strand, uint32_t time) {
    done_[strand.rank][strand.step] = time;
    if (!plans_[strand.rank].waits.empty()) wake(strand.rank, kStep, strand.step);
    ++strand.step;
  }

  /// Lets the strands of a rank go on that wait for this. With a rotation, the only plan is that of all ranks.
  void wake(uint32_t rank, Cause cause, uint32_t on) {
    const bool any = connections_.rotates();
    for (uint32_t i = first_of_[any ? 0 : rank]; i < first_of_[any ? 1 : rank + 1]; ++i) {
      Strand& strand = strands_[i];
      if (strand.waits != cause || (strand.waits_for != on && !any)) continue;
      strand.waits = kNothing;
      ready_.push_back(i);
    }
  }

  std::string why_waiting(const Strand& strand) const;
  const Strand* other_end(const Strand& strand) const;

  std::span<const Plan> plans_;
  const Connections& connections_;
  uint64_t slots_;
  std::vector<Strand> strands_;                  ///< those of all ranks
  std::vector<uint32_t> first_of_;               ///< by rank: its first strand; one more entry at the end
  std::vector<std::vector<uint32_t>> done_;      ///< by rank and step
  std::vector<std::vector<uint32_t>> sent_;      ///< by connection: the times of its messages
  std::vector<std::vector<uint32_t>> received_;  ///< the same
  std::vector<StrandOrder> orders_;
  std::vector<uint32_t> ready_;
};

std::string Clocks::why_waiting(const Strand& strand) const {
  const std::string begin = fmt::format("rank {} waits at step {} for ", strand.rank, strand.step);
  if (strand.waits == kStep) return begin + fmt::format("step {}", strand.waits_for);
  return begin + fmt::format("{} rank {}", strand.waits == kSlot ? "a slot to" : "a message from", strand.waits_for);
}

/// The strand that could end the wait; null if there is none.
const Clocks::Strand* Clocks::other_end(const Strand& strand) const {
  const uint32_t rank = strand.waits == kStep ? strand.rank : strand.waits_for;
  const Plan& plan = plans_[rank];
  const auto of = [&](size_t step) { return &strands_[first_of_[rank] + plan.strand_of(static_cast<uint32_t>(step))]; };
  if (strand.waits == kStep) return of(strand.waits_for);
  const auto is_me = [&](const tutti_plan_peer& peer) { return peer.rank == strand.rank; };
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    const auto peers = strand.waits == kSlot ? plan.recv(plan.steps[step]) : plan.send(plan.steps[step]);
    if (std::any_of(peers.begin(), peers.end(), is_me)) return of(step);
  }
  return nullptr;
}

Status Clocks::deadlock(std::optional<StepPlace>* place) const {
  constexpr size_t kMostStrandsNamed = 8;
  const auto first = std::find_if_not(strands_.begin(), strands_.end(), has_ended);
  if (place != nullptr) *place = StepPlace{first->rank, first->step};
  const Strand* at = &*first;
  std::string chain = why_waiting(*at);
  std::set<const Strand*> named = {at};
  while (named.size() < kMostStrandsNamed) {
    if (connections_.rotates() && at->waits != kStep) {
      chain += "; so do all ranks";
      break;
    }
    const Strand* next = other_end(*at);
    if (next == nullptr || has_ended(*next)) {
      chain += fmt::format("; rank {} {} no more", at->waits_for, at->waits == kSlot ? "receives" : "sends");
      break;
    }
    if (!named.insert(next).second) break;
    at = next;
    chain += "; " + why_waiting(*at);
  }
  return {Code::kFailedPrecondition, "deadlock: " + chain};
}

Result<std::vector<StrandOrder>> order(std::span<const Plan> plans, const Connections& connections,
                                       std::optional<StepPlace>* place) {
  for (uint64_t slots = 1;; slots *= 2) {
    Clocks clocks(plans, connections, slots);
    clocks.run();
    if (clocks.ended()) return clocks.orders();
    if (!clocks.any_waits_for_slot()) return clocks.deadlock(place);
  }
}

/// One half of a gather or scatter step, or the step as it is.
tutti_plan_step part_of(tutti_plan_step step, const StrandOrder::Part& part, tutti_plan_range& range) {
  if (part.sends && part.receives) return step;
  if (part.sends) {
    step.recv_begin = step.recv_count = 0;
    if (step.destination == TUTTI_BUFFER_NONE) range.destination_stride = 0;
    return step;
  }
  range.source_stride = 0;
  tutti_plan_step receives = {};
  receives.flags = TUTTI_STEP_GATHER;
  receives.gather_buffer = step.gather_buffer;
  receives.recv_begin = step.recv_begin;
  receives.recv_count = step.recv_count;
  return receives;
}

}  // namespace

bool any_strands(std::span<const Plan> plans) {
  return std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return !plan.strands.empty(); });
}

Result<std::vector<StrandOrder>> order_strands(std::span<const Plan> plans, std::optional<StepPlace>* place) {
  const Connections connections(plans);
  return order(plans, connections, place);
}

Result<StrandOrder> order_strands_of_rotation(const Plan& zero, std::optional<StepPlace>* place) {
  const Connections connections = Connections::of_rotation(zero);
  TUTTI_ASSIGN(std::vector<StrandOrder> orders, order({&zero, 1}, connections, place));
  return std::move(orders.front());
}

Result<OneStrand> in_order(const Plan& plan, const StrandOrder& order) {
  Plan listed = plan;
  OneStrand made;
  listed.steps.clear();
  listed.ranges.clear();
  listed.strands.clear();
  listed.waits.clear();
  for (const StrandOrder::Part& part : order.parts) {
    tutti_plan_range range = plan.range(plan.steps[part.step]);
    listed.steps.push_back(part_of(plan.steps[part.step], part, range));
    if (!plan.ranges.empty()) listed.ranges.push_back(range);
    made.numbers.push_back(part.step);
  }
  TUTTI_ASSIGN(made.plan, copy(listed.view()));
  return made;
}

Result<OneStrandSet> in_one_strand(std::span<const Plan> plans, std::optional<StepPlace>* place) {
  TUTTI_ASSIGN(const std::vector<StrandOrder> orders, order_strands(plans, place));
  OneStrandSet set;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    TUTTI_ASSIGN(OneStrand one, in_order(plans[rank], orders[rank]));
    set.plans.push_back(std::move(one.plan));
    set.numbers.push_back(std::move(one.numbers));
  }
  return set;
}

}  // namespace tutti::program
