// SPDX-License-Identifier: Apache-2.0
// The numbers of chunks are equal where the addresses of the chunks in the buffers of a call are.
#include "program/passes/alias.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

namespace tutti::test {
namespace {

using program::Plan;

constexpr uint32_t kRanks = 4;
constexpr uint32_t kChunks = 3;

Plan plan_of(Collective collective, uint32_t rank) {
  Plan plan;
  plan.collective = collective;
  plan.rank_count = kRanks;
  plan.rank = rank;
  plan.chunks = kChunks;
  plan.scratch_chunks = 2;
  const program::Blocks blocks = program::blocks_of(collective, kRanks);
  plan.input_blocks = blocks.input;
  plan.output_blocks = blocks.output;
  return plan;
}

/// Where a chunk begins if a chunk is one byte, as applications pass buffers in place: the smaller buffer is the rank's
/// block of the larger one.
uint32_t address_of(const Plan& plan, bool in_place, uint32_t buffer, uint32_t chunk) {
  constexpr uint32_t kOutput = 1000;
  constexpr uint32_t kInput = 2000;
  constexpr uint32_t kScratch = 3000;
  const uint32_t own = plan.rank * kChunks;
  const bool larger_input = plan.input_blocks > plan.output_blocks;
  const bool larger_output = plan.output_blocks > plan.input_blocks;
  if (buffer == TUTTI_BUFFER_SCRATCH) return kScratch + chunk;
  if (buffer == TUTTI_BUFFER_OUTPUT) return kOutput + chunk + (in_place && larger_input ? own : 0);
  if (!in_place) return kInput + chunk;
  return kOutput + chunk + (larger_output ? own : 0);
}

TEST(Alias, SameNumberWhereTheSameAddress) {
  for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
    if (collective == TUTTI_SEND_RECV) continue;  // its blocks are the author's
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const bool in_place : {false, true}) {
        const Plan plan = plan_of(static_cast<Collective>(collective), rank);
        SCOPED_TRACE(fmt::format("{}, rank {}, in place {}", to_string(plan.collective), rank, in_place));
        std::map<uint32_t, uint32_t> number_at;  // by address
        std::map<uint32_t, uint32_t> address_of_number;
        for (const uint32_t buffer : {TUTTI_BUFFER_INPUT, TUTTI_BUFFER_OUTPUT, TUTTI_BUFFER_SCRATCH}) {
          for (uint32_t chunk = 0; chunk < plan.chunks_of(buffer); ++chunk) {
            const uint32_t number = program::place_of(plan, in_place, buffer, chunk);
            const uint32_t address = address_of(plan, in_place, buffer, chunk);
            EXPECT_LT(number, program::place_count(plan));
            EXPECT_EQ(number_at.try_emplace(address, number).first->second, number) << buffer << ", chunk " << chunk;
            EXPECT_EQ(address_of_number.try_emplace(number, address).first->second, address)
                << buffer << ", chunk " << chunk;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
