// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "all_to_all.h"
#include "schedules.h"

namespace tutti::hier {
namespace {

/// Hops, messages and bytes between machines of one rank. The bytes are a multiple of the rank's part.
struct Between {
  uint32_t hops;
  uint32_t messages;
  double parts;
};

Between between_machines(uint32_t variant, uint32_t machines, bool per_block) {
  const uint32_t others = machines - 1;
  if (variant == kDoubling) {
    const auto rounds = static_cast<uint32_t>(std::bit_width(machines) - 1);
    return {rounds, rounds, static_cast<double>(per_block ? others : rounds)};
  }
  if (variant == kRing) return {2 * others, 2 * others, 2.0 * others / machines};
  if (variant == kBruck) {
    const auto rounds = static_cast<uint32_t>(std::bit_width(others));
    double parts = 0;
    for (uint32_t bit = 1; bit < machines; bit *= 2) parts += distances_with(bit, machines);
    return {rounds, rounds, parts};
  }
  return {1, others, static_cast<double>(others)};
}

}  // namespace

tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Hierarchy& hierarchy, uint32_t inside) {
  const uint32_t neighbours = hierarchy.positions() - 1;
  const uint32_t machines = hierarchy.machines();
  const bool per_block = has_blocks(collective);
  Between between = between_machines(variant, machines, per_block);
  // A part is the share of a rank in the data of its machine; of collectives with a block per rank, it is the block.
  const double part = 1.0 / (per_block ? hierarchy.rank_count() : hierarchy.positions());
  const uint32_t phases = per_block ? machines : 2;                    // with messages to all neighbours
  uint32_t messages = per_block && variant == kDoubling ? 1 : phases;  // to each neighbour
  double copied = 0;                                                   // blocks that go through scratch memory
  if (collective == TUTTI_ALL_TO_ALL) {
    between.parts *= hierarchy.positions();
    messages = messages_per_neighbour(hierarchy);
    copied = between.parts;
    if (variant == kBruck) copied += (machines - 1.0) * hierarchy.positions();  // they are passed on
  }
  if (collective == TUTTI_REDUCE_SCATTER && variant == kDoubling) copied = between.parts;

  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  cost.fan = std::max(neighbours, variant == kExchange ? machines - 1 : 1);
  cost.hops[TUTTI_LINK_NETWORK] = between.hops;
  cost.messages[TUTTI_LINK_NETWORK] = between.messages;
  cost.wire[TUTTI_LINK_NETWORK] = part * between.parts;
  if (neighbours > 0) {
    cost.hops[inside] = per_block ? 1 : 2;
    cost.messages[inside] = messages * neighbours;
    cost.wire[inside] = part * phases * neighbours;
  }
  // With a root, one machine sends its parts to the other machines, or receives theirs. Without a root, all ranks are
  // as busy as the busiest.
  if (collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE) {
    const uint32_t ranks = hierarchy.positions();
    cost.machine_messages[inside] = 2 * ranks * neighbours;
    cost.machine_messages[TUTTI_LINK_NETWORK] = ranks * between.messages;
    cost.machine_wire[inside] = 2 * ranks * part * neighbours;
    cost.machine_wire[TUTTI_LINK_NETWORK] = ranks * part * between.parts;
  }
  // The own input is read once and the output written once. Each message that arrives is read from its slot. Scratch
  // memory is written and read.
  cost.memory = 2.0 + part * (phases * neighbours + between.parts + 2 * copied);
  return cost;
}

}  // namespace tutti::hier
