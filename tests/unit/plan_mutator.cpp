// SPDX-License-Identifier: Apache-2.0
#include "unit/plan_mutator.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::test {

using program::Plan;

namespace {

constexpr uint32_t kNoId = ~0u;

/// The strands and waits of steps whose numbers are known.
void place_strands(const std::vector<LooseStep>& steps, Plan& plan) {
  std::map<uint32_t, uint32_t> number_of;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (i == 0 || steps[i].strand != steps[i - 1].strand) plan.strands.push_back({i, 0});
    ++plan.strands.back().step_count;
    if (steps[i].id != kNoId) number_of.emplace(steps[i].id, i);
  }
  if (plan.strands.size() == 1) plan.strands.clear();
  for (uint32_t i = 0; i < steps.size(); ++i) {
    for (const uint32_t id : steps[i].after) {
      if (const auto found = number_of.find(id); found != number_of.end()) plan.waits.push_back({i, found->second});
    }
  }
  const auto key = [](const tutti_plan_wait& wait) { return std::pair(wait.step, wait.after); };
  std::sort(plan.waits.begin(), plan.waits.end(), [&](auto a, auto b) { return key(a) < key(b); });
  const auto same = [&](auto a, auto b) { return key(a) == key(b); };
  plan.waits.erase(std::unique(plan.waits.begin(), plan.waits.end(), same), plan.waits.end());
}

}  // namespace

std::vector<LooseStep> take_apart(const Plan& plan) {
  std::vector<LooseStep> steps;
  for (uint32_t at = 0; at < plan.steps.size(); ++at) {
    const tutti_plan_step& step = plan.steps[at];
    const auto recv = plan.recv(step);
    const auto send = plan.send(step);
    const auto range = plan.ranges.empty() ? std::nullopt : std::optional(plan.ranges[at]);
    LooseStep loose{step, {recv.begin(), recv.end()}, {send.begin(), send.end()}, range, plan.strand_of(at), at, {}};
    for (const tutti_plan_wait& wait : plan.waits_of(at)) loose.after.push_back(wait.after);
    steps.push_back(std::move(loose));
  }
  return steps;
}

void put_together(const std::vector<LooseStep>& steps, Plan& plan) {
  plan.steps.clear();
  plan.peers.clear();
  plan.ranges.clear();
  plan.strands.clear();
  plan.waits.clear();
  const auto append = [&](const std::vector<tutti_plan_peer>& peers, uint16_t& begin, uint16_t& count) {
    begin = static_cast<uint16_t>(plan.peers.size());
    count = static_cast<uint16_t>(peers.size());
    plan.peers.insert(plan.peers.end(), peers.begin(), peers.end());
  };
  for (LooseStep loose : steps) {
    append(loose.recv, loose.step.recv_begin, loose.step.recv_count);
    append(loose.send, loose.step.send_begin, loose.step.send_count);
    plan.steps.push_back(loose.step);
    if (loose.range) plan.ranges.push_back(*loose.range);
  }
  place_strands(steps, plan);
}

void Mutator::mutate(std::vector<Plan>& plans) {
  if (below(8) == 0) return rename_chunks(plans);
  Plan& plan = plans[below(plans.size())];
  std::vector<LooseStep> steps = take_apart(plan);
  if (steps.empty()) return;
  const size_t at = below(steps.size());
  if (!plan.strands.empty() && below(3) == 0) {
    change_strands(steps, at);
  } else {
    change_step(steps, at, plan);
  }
  put_together(steps, plan);
}

void Mutator::change_step(std::vector<LooseStep>& steps, size_t at, const Plan& plan) {
  const size_t other = below(steps.size());
  switch (below(7)) {
    case 0:
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      std::swap(steps[at], steps[other]);
      std::swap(steps[at].strand, steps[other].strand);
      break;
    case 2: {
      LooseStep copy = steps[other];
      copy.strand = steps[at].strand;
      copy.id = kNoId;
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), std::move(copy));
      break;
    }
    case 3:
      change_chunk(steps[at].step, plan);
      break;
    case 4:
      change_buffer(steps[at].step);
      break;
    case 5:
      steps[at].step.flags = static_cast<uint8_t>(steps[at].step.flags ^ (1u << below(3)));
      break;
    default:
      change_peers(below(2) == 0 ? steps[at].recv : steps[at].send, plan);
  }
}

/// Adds, moves or removes a wait, or moves a step to the strand before it.
void Mutator::change_strands(std::vector<LooseStep>& steps, size_t at) {
  std::vector<uint32_t>& after = steps[at].after;
  const uint32_t other = steps[below(steps.size())].id;
  switch (below(4)) {
    case 0:
      after.push_back(other);
      break;
    case 1:
      if (!after.empty()) after[below(after.size())] = other;
      break;
    case 2:
      if (!after.empty()) after.erase(after.begin() + static_cast<std::ptrdiff_t>(below(after.size())));
      break;
    default:
      for (; at > 0 && steps[at].strand == steps[at - 1].strand; --at) continue;
      if (at > 0) steps[at].strand = steps[at - 1].strand;
  }
}

void Mutator::change_chunk(tutti_plan_step& step, const Plan& plan) {
  uint32_t& chunk = below(2) == 0 ? step.source_chunk : step.destination_chunk;
  chunk = static_cast<uint32_t>(below(std::max(plan.input_chunks(), plan.output_chunks()) + 1));
}

void Mutator::change_buffer(tutti_plan_step& step) {
  if (below(2) == 0) {
    step.source = static_cast<uint8_t>(below(3));
  } else {
    step.destination = step.destination == TUTTI_BUFFER_NONE ? TUTTI_BUFFER_OUTPUT : TUTTI_BUFFER_NONE;
  }
  if (below(2) == 0) step.source_chunk = step.destination_chunk;
}

void Mutator::change_peers(std::vector<tutti_plan_peer>& peers, const Plan& plan) {
  const auto rank = static_cast<uint32_t>(below(plan.rank_count + 1));
  if (peers.empty() || below(5) == 0) return peers.push_back({rank, 0});
  const size_t at = below(peers.size());
  switch (below(4)) {
    case 0:
      peers[at].rank = rank;
      break;
    case 1:
      peers[at].chunk = static_cast<uint32_t>(below(plan.output_chunks() + 1));
      break;
    case 2:
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    default:
      std::swap(peers[at], peers[below(peers.size())]);
  }
}

/// Swaps two chunks everywhere. An all-reduce stays right, most other collectives do not.
void Mutator::rename_chunks(std::vector<Plan>& plans) {
  const auto a = static_cast<uint32_t>(below(plans[0].output_chunks()));
  const auto b = static_cast<uint32_t>(below(plans[0].output_chunks()));
  const auto rename = [&](uint32_t& chunk) { chunk = chunk == a ? b : chunk == b ? a : chunk; };
  for (Plan& plan : plans) {
    std::vector<LooseStep> steps = take_apart(plan);
    for (LooseStep& loose : steps) {
      if (loose.step.source != TUTTI_BUFFER_NONE) rename(loose.step.source_chunk);
      if (loose.step.destination != TUTTI_BUFFER_NONE) rename(loose.step.destination_chunk);
      if ((loose.step.flags & TUTTI_STEP_GATHER) != 0) {
        for (tutti_plan_peer& peer : loose.recv) rename(peer.chunk);
      }
      if ((loose.step.flags & TUTTI_STEP_SCATTER) != 0) {
        for (tutti_plan_peer& peer : loose.send) rename(peer.chunk);
      }
    }
    put_together(steps, plan);
  }
}

}  // namespace tutti::test
