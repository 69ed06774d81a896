// SPDX-License-Identifier: Apache-2.0
#include "program/verify/images.h"

#include <fmt/format.h>

#include "program/verify/order.h"

namespace tutti::program {

Result<Rotation> common_rotation(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  const auto no = [](std::string why) { return Status(Code::kUnsupported, std::move(why)); };
  TUTTI_ASSIGN(const Plan zero, source(0));
  if (has_root(zero.collective)) return no("a collective with a root has no rotation");
  std::optional<Rotation> rotation;
  Extent extent;
  extent.add(zero);
  for (uint32_t rank = 1; rank < rank_count; ++rank) {
    TUTTI_ASSIGN(const Plan plan, source(rank));
    if (rank == 1) rotation = find_rotation(zero, plan);
    if (!rotation) return no("the plans of ranks 0 and 1 are not images of each other under a rotation");
    extent.add(plan);
    if (extent.entries > limits.entries) {
      return no(fmt::format("the plans of all ranks have more than {} steps and peers to compare", limits.entries));
    }
    if (plan.rank != rank) return no(fmt::format("plan {}: rank is {}, expected {}", rank, plan.rank, rank));
    if (std::string what = differs_from_image(*rotation, zero, plan); !what.empty()) return no(std::move(what));
  }
  if (!rotation) return rotation_of(zero, 0, 0);  // one rank
  return *rotation;
}

PlanSource along_ring(const PlanSource& source, const std::vector<uint32_t>& positions) {
  std::vector<uint32_t> ranks(positions.size());
  for (uint32_t rank = 0; rank < positions.size(); ++rank) ranks[positions[rank]] = rank;
  return [&source, &positions, ranks = std::move(ranks)](uint32_t position) -> Result<Plan> {
    TUTTI_ASSIGN(const Plan plan, source(ranks[position]));
    return renumbered(plan, positions);
  };
}

}  // namespace tutti::program
