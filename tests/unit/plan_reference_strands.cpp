// SPDX-License-Identifier: Apache-2.0
// What the reference refuses in plans with strands before it runs them.
#include <algorithm>
#include <map>
#include <set>

#include "unit/plan_reference.h"

namespace tutti::test {
namespace {

/// By step: its strand.
std::vector<size_t> strands_of(const program::Plan& plan) {
  std::vector<size_t> strands(plan.steps.size());
  for (size_t i = 0; i < plan.strands.size(); ++i) {
    for (uint32_t k = 0; k < plan.strands[i].step_count; ++k) strands[plan.strands[i].first_step + k] = i;
  }
  return strands;
}

/// The steps of two loops that come after `from` by the order of strands and by waits. Step s of the second loop has
/// the number s + steps.
std::set<size_t> reached(const program::Plan& plan, size_t from) {
  const size_t steps = plan.steps.size();
  const std::vector<size_t> strands = strands_of(plan);
  std::set<size_t> seen;
  std::vector<size_t> open = {from};
  const auto add = [&](size_t node) {
    if (seen.insert(node).second) open.push_back(node);
  };
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    const size_t step = node % steps;
    const size_t loop = node / steps;
    const tutti_plan_strand& strand = plan.strands[strands[step]];
    if (step + 1 < size_t{strand.first_step} + strand.step_count) {
      add(node + 1);
    } else if (loop == 0) {
      add(strand.first_step + steps);
    }
    for (const tutti_plan_wait& wait : plan.waits) {
      if (wait.after == step) add(loop * steps + wait.step);
    }
  }
  return seen;
}

}  // namespace

std::string Reference::malformed_strands(const Plan& plan) const {
  if (plan.strands.empty()) return plan.waits.empty() ? "" : "a wait without strands";
  if (plan.strands.size() > 64) return "too many strands";
  size_t end = 0;
  for (const tutti_plan_strand& strand : plan.strands) {
    if (strand.first_step != end || strand.step_count == 0) return "strands";
    end += strand.step_count;
  }
  if (end != plan.steps.size()) return "strands";
  const std::vector<size_t> strands = strands_of(plan);
  for (size_t i = 0; i < plan.waits.size(); ++i) {
    const auto [step, after] = plan.waits[i];
    if (step >= end || after >= end || strands[step] == strands[after]) return "wait";
    if (i > 0 &&
        (plan.waits[i - 1].step > step || (plan.waits[i - 1].step == step && plan.waits[i - 1].after >= after))) {
      return "order of waits";
    }
  }
  std::map<std::pair<bool, uint32_t>, std::set<size_t>> users;
  for (size_t step = 0; step < end; ++step) {
    for (const tutti_plan_peer& peer : plan.send(plan.steps[step])) users[{true, peer.rank}].insert(strands[step]);
    for (const tutti_plan_peer& peer : plan.recv(plan.steps[step])) users[{false, peer.rank}].insert(strands[step]);
  }
  const auto shared = [](const auto& user) { return user.second.size() > 1; };
  return std::any_of(users.begin(), users.end(), shared) ? "two strands share a connection" : "";
}

/// The memory that a step reads (false) and writes (true).
std::vector<std::pair<size_t, bool>> Reference::touched(uint32_t rank, const tutti_plan_step& step) const {
  const Plan& plan = plans_[rank];
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
  const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
  std::vector<std::pair<size_t, bool>> touched;
  const auto add = [&](uint8_t buffer, uint32_t chunk, bool writes) {
    touched.emplace_back(place(rank, buffer, chunk), writes);
  };
  const auto own = step.source == TUTTI_BUFFER_NONE ? std::vector<uint32_t>()
                                                    : list(plan, step, step.source, step.source_chunk, false);
  const bool folds = !gathers && !scatters;
  if (step.destination != TUTTI_BUFFER_NONE || (step.send_count > 0 && !scatters) || (step.recv_count > 0 && folds)) {
    for (const uint32_t chunk : own) add(step.source, chunk, false);
  }
  if (step.destination != TUTTI_BUFFER_NONE) {
    const auto to = list(plan, step, step.destination, step.destination_chunk, true);
    for (size_t i = 0; i < to.size(); ++i) {
      const bool stays =
          !reducing() && i < own.size() && place(rank, step.source, own[i]) == place(rank, step.destination, to[i]);
      if (!stays) add(step.destination, to[i], true);
    }
  }
  for (const tutti_plan_peer& peer : plan.send(step)) {
    if (!scatters) break;
    for (const uint32_t chunk : list(plan, step, step.source, peer.chunk, false)) add(step.source, chunk, false);
  }
  for (const tutti_plan_peer& peer : plan.recv(step)) {
    if (!gathers) break;
    const uint8_t buffer = step.gather_buffer == 0 ? TUTTI_BUFFER_OUTPUT : step.gather_buffer;
    for (const uint32_t chunk : list(plan, step, buffer, peer.chunk, true)) add(buffer, chunk, true);
  }
  return touched;
}

/// Two steps of different strands that touch the same memory and have no order; also of two loops, which share only
/// scratch memory.
std::string Reference::race(uint32_t rank) const {
  const Plan& plan = plans_[rank];
  if (plan.strands.empty()) return "";
  const size_t steps = plan.steps.size();
  const size_t scratch_at = buffers_[rank][0].memory.size();
  const std::vector<size_t> strands = strands_of(plan);
  std::vector<std::vector<std::pair<size_t, bool>>> touches;
  std::vector<std::set<size_t>> after;
  for (const tutti_plan_step& step : plan.steps) touches.push_back(touched(rank, step));
  for (size_t node = 0; node < 2 * steps; ++node) {
    after.push_back(reached(plan, node));
    if (after.back().contains(node)) return "strands wait for each other";
  }
  for (size_t a = 0; a < 2 * steps; ++a) {
    for (size_t b = a + 1; b < 2 * steps; ++b) {
      if (strands[a % steps] == strands[b % steps] || after[a].contains(b) || after[b].contains(a)) continue;
      for (const auto& [at, writes] : touches[a % steps]) {
        for (const auto& [other_at, other_writes] : touches[b % steps]) {
          const bool meets = a / steps == b / steps || at >= scratch_at;
          if (at == other_at && (writes || other_writes) && meets) return "race";
        }
      }
    }
  }
  return "";
}

}  // namespace tutti::test
