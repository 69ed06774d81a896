// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "all_to_all.h"
#include "binomial.h"
#include "doubling.h"
#include "schedules.h"
#include "tree.h"

namespace tutti::hier {
namespace {

/// Hops, messages and bytes between machines of one rank. The bytes are a multiple of the rank's part.
struct Between {
  uint32_t hops;
  uint32_t messages;
  double parts;
};

Rounds rounds_of(uint32_t variant, uint32_t machines) {
  return Rounds(machines, variant == kMultiplying ? kMultiplyingRadix : 2);
}

/// A further machine sends its sum before the rounds, and gets the result after them. So its delegate sends one message
/// more than in the rounds, and receives one more. If all delegates have the same last digit, the first of these two
/// hops delays no result.
Between in_rounds(const Rounds& rounds) {
  uint32_t hops = 0;
  uint32_t messages = 0;
  uint32_t last_bit = 1;
  for (uint32_t bit = 1; bit < rounds.paired(); bit = rounds.next(bit)) {
    ++hops;
    messages += rounds.radix(bit) - 1;
    last_bit = bit;
  }
  const uint32_t helps = rounds.helped() == 0 ? 0 : 1;
  hops += helps + (rounds.helped() > last_bit ? 1 : 0);
  messages += helps;
  return {hops, messages, static_cast<double>(messages)};
}

/// Each machine has one child in the two trees together, on average. Filling a tree delays the data once more for each
/// hop.
Between in_trees(const TreeShape& shape) {
  constexpr uint32_t kWays = 2;
  return {kWays * shape.depth, shape.ends * shape.chunks,
          kWays * (1.0 + static_cast<double>(shape.depth) / shape.chunks)};
}

Between between_machines(uint32_t collective, uint32_t variant, uint32_t machines) {
  const uint32_t others = machines - 1;
  if (has_blocks(collective) && collective != TUTTI_ALL_TO_ALL && variant != kExchange) {
    const auto rounds = static_cast<uint32_t>(std::bit_width(others));
    return {rounds, rounds, static_cast<double>(others)};
  }
  if (variant == kDoubling || variant == kMultiplying) return in_rounds(rounds_of(variant, machines));
  if (variant == kBinomial) {
    const uint32_t children = binomial_children(machines);
    return {binomial_depth(machines), children, static_cast<double>(children)};
  }
  if (variant == kTree) return in_trees(TreeShape(machines));
  if (variant == kRing) return {2 * others, 2 * others, 2.0 * others / machines};
  if (variant == kBruck) {
    const auto rounds = static_cast<uint32_t>(std::bit_width(others));
    double parts = 0;
    for (uint32_t bit = 1; bit < machines; bit *= 2) parts += distances_with(bit, machines);
    return {rounds, rounds, parts};
  }
  return {1, others, static_cast<double>(others)};
}

/// The most peers in one step of a plan.
uint32_t fan_of(uint32_t collective, uint32_t variant, uint32_t machines, uint32_t neighbours) {
  const uint32_t others = machines - 1;
  if (variant == kExchange && collective != TUTTI_ALL_TO_ALL) {
    // The own part goes to neighbours and counterparts in one step, or comes from both.
    const bool joins = collective == TUTTI_ALL_GATHER || collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE;
    return joins ? neighbours + others : std::max(neighbours, others);
  }
  if (variant == kTree) return std::max(neighbours, TreeShape(machines).children);
  if (variant == kBinomial && collective == TUTTI_REDUCE) return neighbours + binomial_children(machines);
  if (collective != TUTTI_ALL_REDUCE || (variant != kDoubling && variant != kMultiplying)) {
    return std::max(neighbours, 1u);
  }
  // The machine that a delegate helps takes part in the same step as its neighbours.
  const Rounds rounds = rounds_of(variant, machines);
  uint32_t fan = neighbours + (rounds.helped() > 0 ? 1 : 0);
  for (uint32_t bit = 1; bit < rounds.paired(); bit = rounds.next(bit)) fan = std::max(fan, rounds.radix(bit) - 1);
  return fan;
}

/// Hops inside a machine, if it has several ranks.
uint32_t hops_inside(uint32_t collective, uint32_t variant, uint32_t machines) {
  if (!has_blocks(collective)) return 2;
  if (collective == TUTTI_ALL_TO_ALL) return variant == kBruck ? 2 : 1;  // bruck: before and after the rounds
  // exchange: the blocks of each machine wait for the blocks of the machine before.
  return variant == kExchange ? machines - 1 : 1;
}

}  // namespace

tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Hierarchy& hierarchy, uint32_t inside) {
  const uint32_t neighbours = hierarchy.positions() - 1;
  const uint32_t machines = hierarchy.machines();
  const bool per_block = has_blocks(collective);
  Between between = between_machines(collective, variant, machines);
  // A part is the share of a rank in the data of its machine; of collectives with a block per rank, it is the block.
  const double part = 1.0 / (per_block ? hierarchy.rank_count() : hierarchy.positions());
  const uint32_t phases = per_block ? machines : 2;                    // with messages to all neighbours
  uint32_t messages = per_block && variant != kExchange ? 1 : phases;  // to each neighbour
  double copied = 0;                                                   // blocks that go through scratch memory
  if (collective == TUTTI_ALL_TO_ALL) {
    between.parts *= hierarchy.positions();
    messages = messages_per_neighbour(hierarchy);
    copied = between.parts;
    if (variant == kBruck) copied += (machines - 1.0) * hierarchy.positions();  // they are passed on
  }
  if (collective == TUTTI_REDUCE_SCATTER && variant != kExchange) copied = between.parts;

  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  cost.fan = fan_of(collective, variant, machines, neighbours);
  cost.hops[TUTTI_LINK_NETWORK] = between.hops;
  cost.messages[TUTTI_LINK_NETWORK] = between.messages;
  cost.wire[TUTTI_LINK_NETWORK] = part * between.parts;
  if (neighbours > 0) {
    cost.hops[inside] = hops_inside(collective, variant, machines);
    cost.messages[inside] = messages * neighbours;
    cost.wire[inside] = part * phases * neighbours;
  }
  // Kernels of GPUs send each chunk as a message of its own.
  if (inside == TUTTI_LINK_P2P) {
    if (per_block) cost.messages[TUTTI_LINK_NETWORK] = static_cast<uint32_t>(between.parts);
    if (per_block) cost.messages[inside] = machines * neighbours;
    if (variant == kRing) cost.messages[inside] = 2 * machines * neighbours;
    if (variant == kTree) cost.messages[inside] = 2 * TreeShape(machines).chunks * neighbours;
  }
  // With a root, one machine sends its parts to the other machines, or receives theirs. Without a root, all ranks are
  // as busy as the busiest.
  if (collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE) {
    const uint32_t ranks = hierarchy.positions();
    cost.machine_messages[inside] = 2 * ranks * neighbours;
    cost.machine_messages[TUTTI_LINK_NETWORK] = ranks * between.messages;
    cost.machine_wire[inside] = 2 * ranks * part * neighbours;
    cost.machine_wire[TUTTI_LINK_NETWORK] = ranks * part * between.parts;
    if (collective == TUTTI_REDUCE) {  // the neighbours of the root send their sums to it
      cost.machine_messages[inside] += 2 * neighbours;
      cost.machine_wire[inside] += 2 * part * neighbours;
    }
  }
  // The own input is read once and the output written once. Each message that arrives is read from its slot. Scratch
  // memory is written and read.
  cost.memory = 2.0 + part * (phases * neighbours + between.parts + 2 * copied);
  return cost;
}

}  // namespace tutti::hier
