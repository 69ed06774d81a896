// SPDX-License-Identifier: Apache-2.0
// Small changes of plans, at random.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "program/plan.h"

namespace tutti::test {

/// A plan in separate parts, so that one step can change without affecting a step that shares its peers.
struct LooseStep {
  tutti_plan_step step;
  std::vector<tutti_plan_peer> recv;
  std::vector<tutti_plan_peer> send;
  std::optional<tutti_plan_range> range;  ///< none if the plan has no ranges
  uint32_t strand = 0;
  uint32_t id = 0;              ///< by which other steps wait for this step
  std::vector<uint32_t> after;  ///< ids of the steps that the step waits for
};

std::vector<LooseStep> take_apart(const program::Plan& plan);
/// Strands are the runs of steps with equal numbers. Waits for a step that is gone are gone, too.
void put_together(const std::vector<LooseStep>& steps, program::Plan& plan);

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }
  uint64_t seed() { return random_(); }

  /// Changes one thing about a set of plans.
  void mutate(std::vector<program::Plan>& plans);

 private:
  void change_step(std::vector<LooseStep>& steps, size_t at, const program::Plan& plan);
  void change_strands(std::vector<LooseStep>& steps, size_t at);
  void change_chunk(tutti_plan_step& step, const program::Plan& plan);
  void change_buffer(tutti_plan_step& step);
  void change_peers(std::vector<tutti_plan_peer>& peers, const program::Plan& plan);
  void rename_chunks(std::vector<program::Plan>& plans);

  std::mt19937_64 random_;
};

}  // namespace tutti::test
