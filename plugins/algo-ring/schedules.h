// SPDX-License-Identifier: Apache-2.0
// The steps of each rank of a ring, for each collective.
#pragma once

#include "tutti/sdk/plan_builder.h"
#include "tutti/sdk/rings.h"

namespace tutti::ring {

using sdk::Order;

/// One rank's view of its ring. Positions count along the ring; distances may be negative.
class RingView {
 public:
  RingView(const Order& order, uint32_t rank);

  uint32_t size() const { return static_cast<uint32_t>(order_.size()); }
  uint32_t rank() const { return order_[position_]; }
  /// The position `distance` places before this rank's.
  uint32_t position_before(uint32_t distance) const;
  /// The rank there.
  uint32_t before(uint32_t distance) const { return order_[position_before(distance)]; }
  /// 1 if the ranks of the ring ascend, modulo their number, -1 if they descend, else 0.
  int64_t direction() const;
  uint32_t previous() const { return before(1); }
  uint32_t next() const { return before(size() - 1); }

 private:
  const Order& order_;
  uint32_t position_;
};

/// Bit mask of the collectives that rings do.
inline constexpr uint64_t kCollectives = 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_ALL_GATHER |
                                         1u << TUTTI_BROADCAST | 1u << TUTTI_REDUCE;

/// The plan of one rank for one of kCollectives.
sdk::PlanBuilder schedule(const tutti_plan_request& request, const Order& order);

/// The cost of one of kCollectives on `channels` rings through all machines; see tutti_algorithm_cost.
tutti_algorithm_cost cost(uint32_t collective, const tutti_topology& topology, std::span<const tutti_graph> graphs,
                          uint32_t channels);

}  // namespace tutti::ring
