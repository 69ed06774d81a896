// SPDX-License-Identifier: Apache-2.0
#include "program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "program/connection_numbers.h"
#include "program/encode.h"
#include "program/passes/alias.h"
#include "program/passes/number_messages.h"
#include "program/passes/overlap_loops.h"

namespace tutti::program {
namespace {

constexpr uint64_t kGrain = 16;       // bytes that a thread moves at a time
constexpr uint64_t kPartGrain = 128;  // parts of CTAs begin on lines
// The least part of a CTA in each loop and stage, if loops overlap: less data moves faster than the message for which a
// stage waits. A larger part, or fewer loops, leave more data to the waves at either end, in which only some stages
// move data.
constexpr uint64_t kLeastOfStage = 32 << 10;
constexpr uint64_t kLeastChunk = 8 << 10;
constexpr uint64_t kMostLoops = 16;

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}
uint64_t round_up(uint64_t value, uint64_t unit) {
  return ceil_div(value, unit) * unit;
}

struct Touch {
  uint32_t place;  ///< a chunk of memory
  bool writes;
  bool folds;
};

/// The touches of a series of steps. Each call takes constant time: there are four kinds of touches of a place.
class TouchedPlaces {
 public:
  explicit TouchedPlaces(uint32_t places) : places_(places) {}

  void clear() { ++series_; }
  void add(const Touch& touch) {
    Place& place = places_[touch.place];
    if (place.series != series_) place = {series_, 0};
    place.kinds |= bit(touch.writes, touch.folds);
  }
  /// Whether a touch before touches the same place, and one of both writes. Without `folds_too`, two folds do not
  /// count.
  bool conflicts(const Touch& touch, bool folds_too) const {
    const Place& place = places_[touch.place];
    if (place.series != series_) return false;
    uint8_t wanted = 0;
    for (const bool folds : {false, true}) {
      if (folds && touch.folds && !folds_too) continue;
      wanted |= bit(true, folds);
      if (touch.writes) wanted |= bit(false, folds);
    }
    return (place.kinds & wanted) != 0;
  }

 private:
  struct Place {
    uint32_t series = 0;  // in which it was touched last
    uint8_t kinds = 0;
  };
  static uint8_t bit(bool writes, bool folds) {
    return static_cast<uint8_t>(1u << ((writes ? 2 : 0) + (folds ? 1 : 0)));
  }

  std::vector<Place> places_;
  uint32_t series_ = 1;
};

/// The threads that touch each chunk. Folding steps give each place of any chunk to the same thread; exchanges
/// distribute places by message. So if a step of one kind touches a chunk that a step of the other kind touched,
/// threads must meet between the steps.
class Touches {
 public:
  Touches(const Plan& plan, bool in_place)
      : plan_(plan), in_place_(in_place), before_(places_of(plan)), all_before_(places_of(plan)) {}

  /// Forgets the steps so far: the next step belongs to a different CTA.
  void begin_strand() {
    before_.clear();
    all_before_.clear();
  }

  /// TUTTI_CUDA_STEP_AFTER and TUTTI_CUDA_STEP_MEET, as far as `step` needs them.
  uint32_t flags(const tutti_plan_step& step) {
    const std::vector<Touch>& now = touches_of(step);
    const auto any = [&](const TouchedPlaces& before, bool folds_too) {
      return std::any_of(now.begin(), now.end(),
                         [&](const Touch& touch) { return before.conflicts(touch, folds_too); });
    };
    const uint32_t after = any(all_before_, true) ? TUTTI_CUDA_STEP_AFTER : 0;
    const uint32_t meet = any(before_, false) ? TUTTI_CUDA_STEP_MEET : 0;
    if (after != 0) all_before_.clear();
    if (meet != 0) before_.clear();
    for (const Touch& touch : now) {
      all_before_.add(touch);
      before_.add(touch);
    }
    return after | meet;
  }

 private:
  /// Valid until the next call.
  const std::vector<Touch>& touches_of(const tutti_plan_step& step) {
    const bool folds = !exchanges(step);
    now_.clear();
    const auto add = [&](uint32_t buffer, uint32_t chunk, bool writes) {
      if (buffer != TUTTI_BUFFER_NONE) now_.push_back({place(buffer, chunk), writes, folds});
    };
    // A SCATTER step sends its peers' chunks. It touches its own chunk only to copy it, unless to itself.
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const bool has_both = step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
    const bool stays =
        !folds && has_both && place(step.source, step.source_chunk) == place(step.destination, step.destination_chunk);
    const bool sends_own = !scatters && step.send_count > 0;
    if (folds || sends_own || (has_both && !stays)) add(step.source, step.source_chunk, false);
    if (!stays) add(step.destination, step.destination_chunk, true);
    if (scatters) {
      for (uint32_t i = 0; i < step.send_count; ++i) add(step.source, plan_.peers[step.send_begin + i].chunk, false);
    }
    if ((step.flags & TUTTI_STEP_GATHER) != 0) {
      for (uint32_t i = 0; i < step.recv_count; ++i) {
        add(gather_buffer_of(step), plan_.peers[step.recv_begin + i].chunk, true);
      }
    }
    return now_;
  }

  static uint32_t places_of(const Plan& plan) {
    return plan.output_chunks() + plan.input_chunks() + plan.scratch_chunks;
  }
  uint32_t place(uint32_t buffer, uint32_t chunk) const { return place_of(plan_, in_place_, buffer, chunk); }

  const Plan& plan_;
  bool in_place_;
  TouchedPlaces before_;      // since threads met last
  TouchedPlaces all_before_;  // since a step was last made after all before it
  std::vector<Touch> now_;
};

constexpr uint32_t kMaxChunksOfBlock = 65535;    // a step's chunk is 16 bits
constexpr uint32_t kMaxBlocksOfScratch = 65535;  // and so is its block
constexpr uint32_t kMaxChunksOfSmallForm = 255;

/// `who` runs up to `most` of these.
Status limit(const char* what, size_t has, size_t most, const char* who = "back end") {
  if (has <= most) return {};
  return {Code::kUnsupported, fmt::format("needs {} {}; this {} runs up to {}", has, what, who, most)};
}

size_t peers_of(const Plan& plan) {
  size_t peers = 0;
  for (const tutti_plan_step& step : plan.steps) peers += size_t{step.recv_count} + step.send_count;
  return peers;
}

/// What other passes must have removed.
std::string beyond_kernels(const Plan& plan) {
  if (!plan.repeats.empty()) return "repeats";
  return plan.ranges.empty() ? "" : "messages of several chunks";
}

/// A pre-multiplied sum scales the data of the input that is folded or sent.
Status check_own_copies(const Plan& plan) {
  if (!reduces(plan.collective)) return {};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const tutti_plan_step& step = plan.steps[i];
    if (!exchanges(step) || step.source != TUTTI_BUFFER_INPUT || step.destination == TUTTI_BUFFER_NONE) continue;
    return {Code::kUnsupported,
            fmt::format("step {} of a reduction copies its own input beside an exchange, which kernels do not do: make "
                        "the copy a step of its own",
                        i)};
  }
  return {};
}

/// Whether a strand of the plan begins with a step.
bool begins_strand(const Plan& plan, size_t step) {
  return std::any_of(plan.strands.begin(), plan.strands.end(),
                     [&](const tutti_plan_strand& strand) { return strand.first_step == step; });
}

}  // namespace

Status check_kernel_limits(const Plan& plan) {
  if (const std::string beyond = beyond_kernels(plan); !beyond.empty()) {
    return {Code::kUnsupported, fmt::format("needs {}; this back end runs none", beyond)};
  }
  const bool has_strands = !plan.strands.empty();
  TUTTI_TRY(limit(has_strands ? "steps in strands" : "steps", plan.steps.size(),
                  has_strands ? TUTTI_CUDA_MAX_STRAND_STEPS : TUTTI_CUDA_MAX_STEPS));
  TUTTI_TRY(limit("chunks", plan.chunks, kMaxChunksOfBlock));
  TUTTI_TRY(limit("strands", plan.strands.size(), TUTTI_CUDA_MAX_STRANDS));
  TUTTI_TRY(limit("blocks of scratch memory", scratch_blocks(plan.scratch_chunks, plan.chunks), kMaxBlocksOfScratch));
  TUTTI_TRY(check_own_copies(plan));
  TUTTI_TRY(limit("sends and receives", peers_of(plan), TUTTI_CUDA_MAX_PEERS));
  const ConnectionNumbers connections = ConnectionNumbers::of(plan);
  return connections.are_ranks() ? Status() : limit("connections", connections.count(), TUTTI_CUDA_MAX_CONNECTIONS);
}

Status check_small_form(const Plan& plan) {
  if (plan.scratch_chunks > 0) return {Code::kUnsupported, "needs a scratch buffer; this protocol runs none"};
  TUTTI_TRY(limit("steps", plan.steps.size(), TUTTI_CUDA_SMALL_STEPS, "protocol"));
  TUTTI_TRY(limit("chunks", plan.chunks, kMaxChunksOfSmallForm, "protocol"));
  return limit("sends and receives", peers_of(plan), TUTTI_CUDA_SMALL_PEERS, "protocol");
}

Result<Program> lower(const Plan& plan, bool in_place) {
  TUTTI_TRY(limit("ranks", plan.rank_count, TUTTI_CUDA_MAX_RANKS));
  TUTTI_TRY(check_kernel_limits(plan));
  Program program = encode(plan);
  program.strand_count = static_cast<uint32_t>(plan.strands.size());
  Touches touches(plan, in_place);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (begins_strand(plan, i)) touches.begin_strand();
    const uint32_t of_host = TUTTI_STEP_STABLE;
    program.steps[i].flags &= static_cast<uint8_t>(~of_host);
    program.steps[i].flags |= static_cast<uint8_t>(touches.flags(plan.steps[i]));
  }
  for (const tutti_plan_wait& wait : plan.waits) program.steps[wait.after].flags |= TUTTI_CUDA_STEP_SIGNAL;
  return program;
}

void align(Programs& programs, const tutti_slot_layout& layout) {
  even_messages(programs);
  overlap_loops(programs, layout);
}

tutti_cuda_cut cut(uint64_t bytes, uint32_t ctas, const Program& program, const tutti_slot_layout& layout) {
  tutti_cuda_cut cut{};
  cut.part = round_up(ceil_div(bytes, ctas), kPartGrain);
  const uint64_t slot = layout.slot_bytes / kGrain * kGrain;
  const uint64_t most_of_chunk = slot * chunk_slots(program, layout);
  uint64_t loops = ceil_div(cut.part, program.chunks * most_of_chunk);
  uint64_t grain = kGrain;
  if (program.stages > 1) {
    const uint64_t least = std::max(program.stages * kLeastOfStage, program.chunks * kLeastChunk);
    if (const uint64_t wanted = std::min(kMostLoops, cut.part / least); wanted > loops) {
      loops = wanted;
      grain = kPartGrain;
    }
  }
  cut.loops = static_cast<uint32_t>(loops);
  cut.chunk = std::min(round_up(ceil_div(cut.part, loops * program.chunks), grain), most_of_chunk);
  const uint64_t before_last = uint64_t{cut.loops - 1} * program.chunks * cut.chunk;
  cut.last_chunk = round_up(ceil_div(cut.part - std::min(before_last, cut.part), program.chunks), kGrain);
  cut.slices = static_cast<uint32_t>(ceil_div(cut.chunk, slot));
  cut.slice = round_up(ceil_div(cut.chunk, cut.slices), kGrain);
  cut.messages = (cut.loops + program.stages - 1) * cut.slices * program.messages;
  return cut;
}

tutti_cuda_cut cut_message(uint64_t bytes, uint32_t ctas, const tutti_slot_layout& layout) {
  Program program;
  program.messages = 1;
  return cut(bytes, ctas, program, layout);
}

}  // namespace tutti::program
