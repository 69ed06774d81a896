// SPDX-License-Identifier: Apache-2.0
#include "program/in_one_strand.h"

#include "program/repeat.h"
#include "program/verify/images.h"
#include "program/verify/order.h"

namespace tutti::program {
namespace {

/// The order that rank 0 has, and with it all ranks.
Result<StrandOrder> order_by_rotation(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  TUTTI_TRY(common_rotation(rank_count, source, limits).status());
  TUTTI_ASSIGN(Plan zero, source(0));
  TUTTI_ASSIGN(zero, unroll(std::move(zero)));
  return order_strands_of_rotation(zero);
}

Result<StrandOrder> order_by_any_rotation(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  auto rotated = order_by_rotation(rank_count, source, limits);
  if (rotated.status().code() != Code::kUnsupported) return rotated;
  const auto positions = positions_on_cycle(rank_count, source);
  if (!positions.ok()) return rotated;
  auto along = order_by_rotation(rank_count, along_ring(source, *positions), limits);
  return along.status().code() == Code::kUnsupported ? rotated : along;
}

/// The order of each rank, or one order that all ranks have.
Result<std::vector<StrandOrder>> orders_of(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  TUTTI_ASSIGN(const std::string too_large, why_not_exact(rank_count, source, limits));
  if (rank_count > kExactRanks || !too_large.empty()) {
    auto rotated = order_by_any_rotation(rank_count, source, limits);
    if (rotated.ok()) return std::vector<StrandOrder>{*std::move(rotated)};
    if (rotated.status().code() != Code::kUnsupported) return rotated.status();
    if (!too_large.empty()) {
      return Status(Code::kUnsupported,
                    "the strands cannot be put in order: " + too_large + "; " + std::string(rotated.status().text()));
    }
  }
  TUTTI_ASSIGN(const std::vector<Plan> plans, unrolled(rank_count, source));
  return order_strands(plans);
}

/// The plan of a rank, without repeats. `orders` is filled when a plan first needs it.
Result<Plan> in_one_strand(uint32_t rank_count, const PlanSource& source, uint32_t rank, const ProofLimits& limits,
                           std::vector<StrandOrder>& orders) {
  TUTTI_ASSIGN(Plan plan, source(rank));
  TUTTI_ASSIGN(plan, unroll(std::move(plan)));
  if (plan.strands.empty()) return plan;
  if (orders.empty()) {
    TUTTI_ASSIGN(orders, orders_of(rank_count, source, limits));
  }
  TUTTI_ASSIGN(OneStrand one, in_order(plan, orders.size() == 1 ? orders[0] : orders[rank]));
  return std::move(one.plan);
}

}  // namespace

Result<Plan> in_one_strand(uint32_t rank_count, const PlanSource& source, uint32_t rank, const ProofLimits& limits) {
  std::vector<StrandOrder> orders;
  return in_one_strand(rank_count, source, rank, limits, orders);
}

Result<std::vector<Plan>> all_in_one_strand(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  std::vector<StrandOrder> orders;
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    TUTTI_ASSIGN(plans.emplace_back(), in_one_strand(rank_count, source, rank, limits, orders));
  }
  return plans;
}

}  // namespace tutti::program
