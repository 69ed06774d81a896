// SPDX-License-Identifier: Apache-2.0
#include "unit/strand_plans.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "program/verify/touches.h"
#include "unit/plan_mutator.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::Plan;

/// Which steps must be in one strand, and which strand each has at last.
class Groups {
 public:
  explicit Groups(size_t steps) : parent_(steps) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }

  size_t find(size_t step) const {
    while (parent_[step] != step) step = parent_[step];
    return step;
  }
  void join(size_t a, size_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<size_t> parent_;
};

Groups groups_of(const Plan& plan) {
  Groups groups(plan.steps.size());
  std::map<std::pair<bool, uint32_t>, size_t> first;  // by direction and peer: a step that uses the connection
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const tutti_plan_peer& peer : plan.send(plan.steps[i])) {
      groups.join(i, first.try_emplace({true, peer.rank}, i).first->second);
    }
    for (const tutti_plan_peer& peer : plan.recv(plan.steps[i])) {
      groups.join(i, first.try_emplace({false, peer.rank}, i).first->second);
    }
  }
  return groups;
}

bool conflict(const Plan& plan, const tutti_plan_step& a, const tutti_plan_step& b) {
  for (const bool in_place : {false, true}) {
    if (in_place && !can_run_in_place(plan)) continue;
    for (const program::Touch& mine : program::touches(plan, a, in_place)) {
      for (const program::Touch& other : program::touches(plan, b, in_place)) {
        if (mine.place == other.place && (mine.writes || other.writes)) return true;
      }
    }
  }
  return false;
}

Plan in_strands(const Plan& plan, uint32_t most, std::mt19937_64& random) {
  const Groups groups = groups_of(plan);
  std::map<size_t, uint32_t> strand_of;  // by group
  std::vector<LooseStep> steps = take_apart(plan);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto any = static_cast<uint32_t>(random() % most);
    steps[i].strand = strand_of.try_emplace(groups.find(i), any).first->second;
    for (size_t before = 0; before < i; ++before) {
      if (steps[before].strand == steps[i].strand || !conflict(plan, plan.steps[before], plan.steps[i])) continue;
      steps[i].after.push_back(steps[before].id);
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const LooseStep& a, const LooseStep& b) { return a.strand < b.strand; });
  Plan cut = plan;
  put_together(steps, cut);
  return cut;
}

}  // namespace

std::vector<Plan> in_strands(const std::vector<Plan>& plans, uint32_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Plan> cut;
  bool any = false;
  for (const Plan& plan : plans) {
    if (plan.scratch_chunks > 0) return {};
    cut.push_back(in_strands(plan, most, random));
    any = any || !cut.back().strands.empty();
  }
  return any ? cut : std::vector<Plan>();
}

}  // namespace tutti::test
