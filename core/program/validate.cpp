// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "program/plan.h"

namespace tutti::program {
namespace {

Status invalid(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

Status check_below(std::string_view field, uint64_t value, uint64_t limit) {
  if (value < limit) return {};
  return invalid(fmt::format("{}: {} is not below {}", field, value, limit));
}

/// Rounds of the repeat that a step is in; 0 outside all repeats.
uint32_t rounds_of(const tutti_plan& plan, uint32_t step) {
  const std::span repeats(plan.repeats, plan.repeat_count);
  const auto after =
      std::upper_bound(repeats.begin(), repeats.end(), step,
                       [](uint32_t s, const tutti_plan_repeat& repeat) { return s < repeat.first_step; });
  if (after == repeats.begin()) return 0;
  const tutti_plan_repeat& repeat = *std::prev(after);
  return step - repeat.first_step < repeat.step_count ? repeat.rounds : 0;
}

/// The first round in which `growth` has added up to `distance`, modulo `modulus`; UINT64_MAX if there is none.
uint64_t first_round(uint32_t growth, uint32_t distance, uint32_t modulus) {
  if (distance == 0) return 0;
  if (growth == 0) return UINT64_MAX;
  const uint32_t divisor = std::gcd(growth, modulus);
  if (distance % divisor != 0) return UINT64_MAX;
  // The inverse of growth / divisor by Euclid's algorithm, extended.
  const int64_t size = modulus / divisor;
  int64_t inverse = 0;
  int64_t next_inverse = 1;
  for (int64_t rest = size, next = growth / divisor % size; next > 0;) {
    const int64_t quotient = rest / next;
    inverse = std::exchange(next_inverse, inverse - quotient * next_inverse);
    rest = std::exchange(next, rest - quotient * next);
  }
  const auto positive = static_cast<uint64_t>((inverse % size + size) % size);
  return distance / divisor * positive % static_cast<uint64_t>(size);
}

/// Checks one step of a plan; every method checks one aspect of it.
class StepChecker {
 public:
  StepChecker(const tutti_plan& plan, uint32_t step)
      : plan_(plan),
        index_(step),
        step_(plan.steps[step]),
        range_(plan.ranges == nullptr ? kOneChunk : plan.ranges[step]),
        gather_((plan.steps[step].flags & TUTTI_STEP_GATHER) != 0),
        scatter_((plan.steps[step].flags & TUTTI_STEP_SCATTER) != 0),
        final_((plan.steps[step].flags & TUTTI_STEP_FINAL) != 0) {}

  Status check() const {
    TUTTI_TRY(check_codes());
    TUTTI_TRY(check_chunks());
    TUTTI_TRY(check_range());
    TUTTI_TRY(check_peers("recv", step_.recv_begin, step_.recv_count, gather_, gather_ || scatter_,
                          chunks_of(gather_buffer_of(step_))));
    TUTTI_TRY(check_peers("send", step_.send_begin, step_.send_count, scatter_, gather_ || scatter_,
                          chunks_of(step_.source)));
    TUTTI_TRY(check_value());
    TUTTI_TRY(check_flags());
    return check_growth();
  }

 private:
  uint32_t chunks_of(uint32_t buffer) const {
    if (buffer == TUTTI_BUFFER_SCRATCH) return plan_.scratch_chunks;
    return (buffer == TUTTI_BUFFER_INPUT ? plan_.input_blocks : plan_.output_blocks) * plan_.chunks;
  }
  bool relays() const {
    return step_.source == TUTTI_BUFFER_NONE && step_.destination == TUTTI_BUFFER_NONE && !gather_ &&
           step_.recv_count > 0;
  }

  Status check_codes() const {
    if (step_.source > TUTTI_BUFFER_SCRATCH) return invalid(fmt::format("source: {} is no buffer", step_.source));
    if (step_.destination == TUTTI_BUFFER_INPUT || step_.destination > TUTTI_BUFFER_SCRATCH) {
      return invalid(fmt::format("destination: {} is neither none nor output nor scratch", step_.destination));
    }
    if (step_.gather_buffer == TUTTI_BUFFER_INPUT || step_.gather_buffer > TUTTI_BUFFER_SCRATCH) {
      return invalid(fmt::format("gather_buffer: {} is neither output nor scratch", step_.gather_buffer));
    }
    if (!gather_ && step_.gather_buffer != 0) return invalid("gather_buffer: the step does not gather");
    if ((step_.flags & ~(TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER | TUTTI_STEP_FINAL)) != 0) {
      return invalid(fmt::format("flags: {:#x} holds unknown bits", step_.flags));
    }
    return {};
  }

  Status check_chunks() const {
    if (step_.source != TUTTI_BUFFER_NONE) {
      TUTTI_TRY(check_below("source chunk", step_.source_chunk, chunks_of(step_.source)));
    } else {
      TUTTI_TRY(check_below("source chunk without a source", step_.source_chunk, relays() ? plan_.chunks : 1));
    }
    if (step_.destination == TUTTI_BUFFER_NONE) {
      return check_below("destination chunk without a destination", step_.destination_chunk, 1);
    }
    TUTTI_TRY(check_below("destination chunk", step_.destination_chunk, chunks_of(step_.destination)));
    if (step_.source != TUTTI_BUFFER_NONE &&
        step_.source_chunk % plan_.chunks != step_.destination_chunk % plan_.chunks) {
      return invalid(fmt::format("source chunk {} and destination chunk {} differ in size (in c % {})",
                                 step_.source_chunk, step_.destination_chunk, plan_.chunks));
    }
    return {};
  }

  Status check_range() const {
    if (range_.reserved != 0) return invalid("chunks: reserved must be 0");
    if (range_.count == 0) return invalid("chunks: a step has at least one");
    if (range_.count > std::max(1u, plan_.message_chunks)) {
      return invalid(fmt::format("chunks: {} are more than message_chunks, which is {}", range_.count,
                                 std::max(1u, plan_.message_chunks)));
    }
    const bool reads = step_.source != TUTTI_BUFFER_NONE;
    const bool writes = step_.destination != TUTTI_BUFFER_NONE || (gather_ && step_.recv_count > 0);
    if (range_.count > 1 && !reads && !writes && !relays()) return invalid("chunks: the step has none");
    if ((range_.count == 1 || (!reads && !relays())) && range_.source_stride != 0) {
      return invalid("source stride: the step has no list of chunks to read");
    }
    if ((range_.count == 1 || !writes) && range_.destination_stride != 0) {
      return invalid("destination stride: the step has no list of chunks to write");
    }
    if (range_.count == 1) return {};
    if (reads) TUTTI_TRY(check_list("source", step_.source, step_.source_chunk, range_.source_stride));
    if (step_.destination != TUTTI_BUFFER_NONE) {
      TUTTI_TRY(check_list("destination", step_.destination, step_.destination_chunk, range_.destination_stride));
    }
    if (gather_ && step_.recv_count > 0) {
      TUTTI_TRY(check_list("gather", gather_buffer_of(step_), 0, range_.destination_stride));
    }
    if (!reads || step_.destination == TUTTI_BUFFER_NONE) return {};
    for (uint32_t i = 0; i < range_.count; ++i) {
      const uint32_t source = chunk_at(step_.source, step_.source_chunk, range_.source_stride, i);
      const uint32_t destination = chunk_at(step_.destination, step_.destination_chunk, range_.destination_stride, i);
      if (source % plan_.chunks == destination % plan_.chunks) continue;
      return invalid(fmt::format("source chunk {} and destination chunk {} differ in size (in c % {})", source,
                                 destination, plan_.chunks));
    }
    return {};
  }

  uint32_t chunk_at(uint32_t buffer, uint32_t first, uint32_t stride, uint32_t i) const {
    return static_cast<uint32_t>((first + uint64_t{i} * stride) % chunks_of(buffer));
  }

  /// No chunk may occur twice in a list: chunks come again after chunks / gcd(chunks, stride).
  Status check_list(std::string_view field, uint32_t buffer, uint32_t first, uint32_t stride) const {
    const uint32_t chunks = chunks_of(buffer);
    TUTTI_TRY(check_below(fmt::format("{} stride", field), stride, chunks));
    const uint32_t different = stride == 0 ? 1 : chunks / std::gcd(chunks, stride);
    if (range_.count <= different) return {};
    return invalid(fmt::format("{}: {} chunks from {} by {} name chunk {} twice", field, range_.count, first, stride,
                               chunk_at(buffer, first, stride, different)));
  }

  Status check_peers(std::string_view field, uint32_t begin, uint32_t count, bool chunked, bool any_order,
                     uint32_t chunk_limit) const {
    if (begin + count > plan_.peer_count) {
      return invalid(
          fmt::format("{}: entries {} to {} of only {} peers", field, begin, begin + count, plan_.peer_count));
    }
    const std::span peers(plan_.peers + begin, count);
    for (size_t i = 0; i < peers.size(); ++i) {
      const uint32_t rank = peers[i].rank;
      if (rank >= plan_.rank_count) {
        return invalid(fmt::format("{}: rank {} is not below {}", field, rank, plan_.rank_count));
      }
      if (rank == plan_.rank) return invalid(fmt::format("{}: rank {} is this plan's own rank", field, rank));
      if (chunked && peers[i].chunk >= chunk_limit) {
        return invalid(
            fmt::format("{}: chunk {} of rank {} is not below {}", field, peers[i].chunk, rank, chunk_limit));
      }
      if (!chunked && peers[i].chunk != 0) {
        return invalid(fmt::format("{}: rank {} has a chunk, which only gather and scatter use", field, rank));
      }
      if (!any_order && i > 0 && rank <= peers[i - 1].rank) {
        return invalid(fmt::format("{}: rank {} follows rank {}; ranks must ascend", field, rank, peers[i - 1].rank));
      }
    }
    return any_order ? check_distinct(field, peers) : Status();
  }

  static Status check_distinct(std::string_view field, std::span<const tutti_plan_peer> peers) {
    std::vector<uint32_t> ranks;
    for (const tutti_plan_peer& peer : peers) ranks.push_back(peer.rank);
    std::sort(ranks.begin(), ranks.end());
    const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
    if (twice == ranks.end()) return {};
    return invalid(fmt::format("{}: rank {} stands there twice", field, *twice));
  }

  Status check_value() const {
    const bool has_value = step_.source != TUTTI_BUFFER_NONE || (!gather_ && step_.recv_count > 0);
    if (has_value) return {};
    if (step_.destination != TUTTI_BUFFER_NONE) return invalid("destination: the step has no value to write");
    if (step_.send_count > 0) return invalid("send: the step has no value to send");
    if (scatter_) return invalid("scatter: the step has no source");
    if (final_) return invalid("final: the step has no value");
    return {};
  }

  Status check_flags() const {
    const bool reduction = reduces(static_cast<Collective>(plan_.collective));
    const uint32_t operands = (step_.source != TUTTI_BUFFER_NONE ? 1u : 0u) + (gather_ ? 0u : step_.recv_count);
    if (scatter_ && step_.source == TUTTI_BUFFER_NONE) return invalid("scatter: the step has no source");
    if (scatter_ && !gather_ && step_.recv_count > 0) {
      return invalid("recv: a scatter step receives only if it is a gather step too");
    }
    if (final_ && (gather_ || scatter_)) return invalid("final: gather and scatter steps do not reduce");
    if (!reduction && final_) return invalid("final: this collective does not reduce");
    if (!reduction && operands > 1) {
      return invalid(fmt::format("the step folds {} values, but this collective does not reduce", operands));
    }
    return {};
  }

  /// A list of chunks names chunks of all sizes in turn only if the buffer has whole blocks.
  bool has_whole_blocks(uint32_t buffer) const { return chunks_of(buffer) % plan_.chunks == 0; }

  /// A number that the step does not use does not grow; all others grow by less than their modulus.
  Status check_growth() const {
    if (plan_.growths == nullptr) return {};
    const tutti_plan_growth& growth = plan_.growths[index_];
    const uint32_t rounds = rounds_of(plan_, index_);
    const auto check = [&](std::string_view field, uint32_t value, bool is_used, uint32_t modulus) {
      if (value == 0) return Status();
      if (rounds == 0) return invalid(fmt::format("growth of the {}: the step is in no repeat", field));
      if (!is_used) return invalid(fmt::format("growth of the {}: the step has none", field));
      return check_below(fmt::format("growth of the {}", field), value, modulus);
    };
    const bool reads = step_.source != TUTTI_BUFFER_NONE;
    const bool writes = step_.destination != TUTTI_BUFFER_NONE;
    TUTTI_TRY(
        check("source chunk", growth.source_chunk, reads || relays(), reads ? chunks_of(step_.source) : plan_.chunks));
    TUTTI_TRY(check("destination chunk", growth.destination_chunk, writes, writes ? chunks_of(step_.destination) : 1));
    TUTTI_TRY(check("recv ranks", growth.recv_rank, step_.recv_count > 0, plan_.rank_count));
    TUTTI_TRY(
        check("recv chunks", growth.recv_chunk, gather_ && step_.recv_count > 0, chunks_of(gather_buffer_of(step_))));
    TUTTI_TRY(check("send ranks", growth.send_rank, step_.send_count > 0, plan_.rank_count));
    TUTTI_TRY(check("send chunks", growth.send_chunk, scatter_ && step_.send_count > 0, chunks_of(step_.source)));
    if (rounds <= 1) return {};
    TUTTI_TRY(check_own_rank("recv", step_.recv_begin, step_.recv_count, growth.recv_rank, rounds));
    TUTTI_TRY(check_own_rank("send", step_.send_begin, step_.send_count, growth.send_rank, rounds));
    return reads && writes ? check_sizes(growth, rounds) : Status();
  }

  /// No round may have the own rank as a peer.
  Status check_own_rank(std::string_view field, uint32_t begin, uint32_t count, uint32_t growth,
                        uint32_t rounds) const {
    for (const tutti_plan_peer& peer : std::span(plan_.peers + begin, count)) {
      const uint32_t distance = (plan_.rank + plan_.rank_count - peer.rank) % plan_.rank_count;
      const uint64_t round = first_round(growth, distance, plan_.rank_count);
      if (round >= rounds) continue;
      return invalid(fmt::format("{}: in round {}, rank {} is this plan's own rank", field, round, plan_.rank));
    }
    return {};
  }

  /// The source and the destination must have the same size in each round. If both buffers have whole blocks, and both
  /// chunks grow alike modulo `chunks`, round 0 tells.
  Status check_sizes(const tutti_plan_growth& growth, uint32_t rounds) const {
    const bool whole = has_whole_blocks(step_.source) && has_whole_blocks(step_.destination);
    if (whole && growth.source_chunk % plan_.chunks == growth.destination_chunk % plan_.chunks) return {};
    const uint64_t work = uint64_t{rounds} * range_.count;
    if (work > kMaxSteps)
      return {Code::kUnsupported, fmt::format("{} rounds of {} chunks are too many", rounds, range_.count)};
    for (uint32_t round = 0; round < rounds; ++round) {
      const auto first_source =
          static_cast<uint32_t>((step_.source_chunk + uint64_t{round} * growth.source_chunk) % chunks_of(step_.source));
      const auto first_destination = static_cast<uint32_t>(
          (step_.destination_chunk + uint64_t{round} * growth.destination_chunk) % chunks_of(step_.destination));
      for (uint32_t i = 0; i < range_.count; ++i) {
        const uint32_t source = chunk_at(step_.source, first_source, range_.source_stride, i);
        const uint32_t destination = chunk_at(step_.destination, first_destination, range_.destination_stride, i);
        if (source % plan_.chunks == destination % plan_.chunks) continue;
        return invalid(fmt::format("in round {}, source chunk {} and destination chunk {} differ in size (in c % {})",
                                   round, source, destination, plan_.chunks));
      }
    }
    return {};
  }

  const tutti_plan& plan_;
  const uint32_t index_;
  const tutti_plan_step& step_;
  const tutti_plan_range range_;
  const bool gather_;
  const bool scatter_;
  const bool final_;
};

/// Repeats ascend, do not overlap, and have a body and rounds. Written out, the plan has at most kMaxSteps.
Status check_repeats(const tutti_plan& plan) {
  if (plan.reserved != 0) return invalid("reserved: must be 0");
  if (plan.repeat_count == 0) return {};
  if (plan.repeats == nullptr) return invalid("repeats: null, but repeat_count is not 0");
  if (plan.growths == nullptr) return invalid("growths: null, but repeat_count is not 0");
  uint64_t end = 0;
  uint64_t steps = plan.step_count;
  for (uint32_t i = 0; i < plan.repeat_count; ++i) {
    const tutti_plan_repeat& repeat = plan.repeats[i];
    const auto wrong = [&](std::string text) { return invalid(fmt::format("repeat {}: {}", i, text)); };
    if (repeat.reserved != 0) return wrong("reserved must be 0");
    if (repeat.step_count == 0) return wrong("the body has no step");
    if (repeat.rounds == 0) return wrong("there is no round");
    if (repeat.first_step < end) return wrong(fmt::format("begins at step {}, before step {}", repeat.first_step, end));
    end = uint64_t{repeat.first_step} + repeat.step_count;
    if (end > plan.step_count) return wrong(fmt::format("ends at step {} of only {}", end, plan.step_count));
    steps += uint64_t{repeat.step_count} * (repeat.rounds - 1);
    if (steps > kMaxSteps) return wrong(fmt::format("the rounds have more than {} steps", kMaxSteps));
  }
  return {};
}

Status check_blocks(const tutti_plan& plan) {
  const auto collective = static_cast<Collective>(plan.collective);
  if (collective == Collective::kSendRecv) {
    const auto sensible = [&](uint32_t blocks) { return blocks == 1 || blocks == plan.rank_count; };
    if (sensible(plan.input_blocks) && sensible(plan.output_blocks)) return {};
    return invalid("input_blocks and output_blocks must be 1 or the number of ranks");
  }
  const Blocks blocks = blocks_of(collective, plan.rank_count);
  const auto check = [&](const char* field, uint32_t got, uint32_t right) {
    if (got == right) return Status();
    return invalid(
        fmt::format("{}: {} has {} with {} ranks, not {}", field, to_string(collective), right, plan.rank_count, got));
  };
  TUTTI_TRY(check("input_blocks", plan.input_blocks, blocks.input));
  return check("output_blocks", plan.output_blocks, blocks.output);
}

}  // namespace

Status validate_head(const tutti_plan& plan) {
  TUTTI_TRY(check_below("collective", plan.collective, kCollectiveCount));
  if (plan.rank_count == 0) return invalid("rank_count: must be at least 1");
  TUTTI_TRY(check_below("rank", plan.rank, plan.rank_count));
  TUTTI_TRY(check_below("root", plan.root, has_root(static_cast<Collective>(plan.collective)) ? plan.rank_count : 1));
  if (plan.chunks == 0) return invalid("chunks: must be at least 1");
  TUTTI_TRY(check_blocks(plan));
  TUTTI_TRY(check_below("chunks of the input", uint64_t{plan.chunks} * plan.input_blocks, kMaxChunks + 1));
  TUTTI_TRY(check_below("chunks of the output", uint64_t{plan.chunks} * plan.output_blocks, kMaxChunks + 1));
  TUTTI_TRY(check_below("scratch_chunks", plan.scratch_chunks, kMaxChunks + 1));
  TUTTI_TRY(check_below("message_chunks", plan.message_chunks, kMaxMessageChunks + 1));
  TUTTI_TRY(check_below("step_count", plan.step_count, kMaxSteps + 1));
  if (plan.step_count > 0 && plan.steps == nullptr) return invalid("steps: null, but step_count is not 0");
  if (plan.peer_count > 0 && plan.peers == nullptr) return invalid("peers: null, but peer_count is not 0");
  return check_repeats(plan);
}

Status validate_step(const tutti_plan& plan, uint32_t step) {
  return StepChecker(plan, step).check().with_context(fmt::format("step {}", step));
}

Status validate(const tutti_plan& plan) {
  TUTTI_TRY(validate_head(plan));
  for (uint32_t step = 0; step < plan.step_count; ++step) TUTTI_TRY(validate_step(plan, step));
  return validate_strands(plan);
}

}  // namespace tutti::program
