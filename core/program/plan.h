// SPDX-License-Identifier: Apache-2.0
// The plan, owned by the host. tutti/plugin/plan.h defines its fields.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/plugin/algorithm.h"
#include "tutti/types.h"

namespace tutti::program {

inline constexpr tutti_plan_range kOneChunk = {1, 0, 0, 0};

/// The buffer that a GATHER step receives in.
inline uint8_t gather_buffer_of(const tutti_plan_step& step) {
  return step.gather_buffer == TUTTI_BUFFER_SCRATCH ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT;
}

/// Owning form of a tutti_plan. Every Plan made by this folder is valid (see validate) and in canonical form: equal
/// ranges of peers are stored once, in the order of their first use. So equal plans are equal member by member.
struct Plan {
  Collective collective = Collective::kAllReduce;
  uint32_t rank_count = 1;
  uint32_t rank = 0;
  uint32_t root = 0;
  uint32_t channel = 0;
  uint32_t chunks = 1;
  uint32_t input_blocks = 1;
  uint32_t output_blocks = 1;
  std::vector<tutti_plan_step> steps;
  std::vector<tutti_plan_peer> peers;
  uint32_t scratch_chunks = 0;
  uint32_t message_chunks = 1;
  std::vector<tutti_plan_range> ranges;    ///< one for each step; empty: every step has one chunk
  std::vector<tutti_plan_repeat> repeats;  ///< ascending; back ends and most passes take plans without repeats (unroll)
  std::vector<tutti_plan_growth> growths;  ///< one for each step; empty if there is no repeat
  std::vector<tutti_plan_strand> strands;  ///< at least two; empty: one strand has all steps. The host and most passes
                                           ///< take plans without strands (program/passes/order_strands.h)
  std::vector<tutti_plan_wait> waits;      ///< ascending

  /// The same plan as the ABI's struct; valid as long as this plan is neither changed nor moved.
  tutti_plan view() const;
  std::span<const tutti_plan_peer> recv(const tutti_plan_step& step) const;
  std::span<const tutti_plan_peer> send(const tutti_plan_step& step) const;
  uint32_t input_chunks() const { return input_blocks * chunks; }
  uint32_t output_chunks() const { return output_blocks * chunks; }
  /// The number of chunks of one of TUTTI_BUFFER_*. NONE stands for data that a step forwards: the chunks of a block.
  uint32_t chunks_of(uint32_t buffer) const {
    if (buffer == TUTTI_BUFFER_INPUT) return input_chunks();
    if (buffer == TUTTI_BUFFER_OUTPUT) return output_chunks();
    return buffer == TUTTI_BUFFER_SCRATCH ? scratch_chunks : chunks;
  }
  /// The chunks of a step of this plan.
  tutti_plan_range range(const tutti_plan_step& step) const {
    return ranges.empty() ? kOneChunk : ranges[static_cast<size_t>(&step - steps.data())];
  }
  /// How a step of this plan grows in each round.
  tutti_plan_growth growth(const tutti_plan_step& step) const {
    return growths.empty() ? tutti_plan_growth{} : growths[static_cast<size_t>(&step - steps.data())];
  }
  /// The strand of a step; 0 in a plan without strands.
  uint32_t strand_of(uint32_t step) const;
  /// The waits of a step.
  std::span<const tutti_plan_wait> waits_of(uint32_t step) const;
  /// Chunk `i` of the list that begins with `first`.
  uint32_t chunk_at(uint32_t buffer, uint32_t first, uint32_t stride, uint32_t i) const {
    return static_cast<uint32_t>((first + uint64_t{i} * stride) % chunks_of(buffer));
  }
  bool operator==(const Plan& other) const;
};

/// How many blocks the buffers of a collective have.
struct Blocks {
  uint32_t input;
  uint32_t output;
};
Blocks blocks_of(Collective collective, uint32_t rank_count);
/// Whether the collective reduces: only then may a step fold more than one value or be FINAL.
bool reduces(Collective collective);
/// Whether the collective has a root.
bool has_root(Collective collective);

/// Whether a plan has what version 1 of the plan form has not: a scratch buffer, messages of several chunks, repeats or
/// strands. The text names it; empty: version 1 has all.
std::string beyond_version_1(const Plan& plan);

/// The largest plan this build takes: chunks of one buffer, and steps.
inline constexpr uint32_t kMaxChunks = 1u << 22;
inline constexpr uint32_t kMaxSteps = 1u << 20;
/// Chunks of a message.
inline constexpr uint32_t kMaxMessageChunks = 1u << 16;
/// Strands of a plan, and waits with the repeats written out.
inline constexpr uint32_t kMaxStrands = 64;
inline constexpr uint32_t kMaxWaits = 1u << 20;

/// Whether a plan by itself keeps the rules of tutti/plugin/plan.h: every value in its range, peers as demanded, every
/// step possible. The text of a failure names step and field: "step 3: recv: rank 9 is not below 4". verify checks the
/// properties of all ranks together (program/verify/verify.h).
Status validate(const tutti_plan& plan);
/// The parts of validate, for readers that know the place of each step. A step may be asked about only after the head
/// was found right, and strands only after all steps were. `at` is set to the step that a failure is about, if it is
/// about one.
Status validate_head(const tutti_plan& plan);
Status validate_step(const tutti_plan& plan, uint32_t step);
Status validate_strands(const tutti_plan& plan, std::optional<uint32_t>* at = nullptr);

/// A validated canonical copy.
Result<Plan> copy(const tutti_plan& plan);

/// Calls `emitter` with a sink and returns the one plan it emits, validated and with its repeats. A failure has the
/// text that the emitter's plugin gave.
Result<Plan> collect(const std::function<int32_t(const tutti_plan_sink*)>& emitter);
/// Asks an algorithm for a plan, and checks that it is the one asked for. The plan has its repeats.
Result<Plan> collect_rolled(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request);
/// The same without repeats. Strands stay.
Result<Plan> collect_strands(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request);
/// The same without repeats and strands: the plan as back ends run it that run one strand. If the plan has strands,
/// asks for the plans of all ranks. Fails (kUnsupported) where unroll() or in_one_strand() (program/in_one_strand.h)
/// does.
Result<Plan> collect(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request);

}  // namespace tutti::program
