// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

/// Checks one step of a plan; every method checks one aspect of it.
class StepChecker {
 public:
  StepChecker(const tutti_plan& plan, uint32_t step)
      : plan_(plan),
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
    return check_flags();
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

  const tutti_plan& plan_;
  const tutti_plan_step& step_;
  const tutti_plan_range range_;
  const bool gather_;
  const bool scatter_;
  const bool final_;
};

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
  return {};
}

Status validate_step(const tutti_plan& plan, uint32_t step) {
  return StepChecker(plan, step).check().with_context(fmt::format("step {}", step));
}

Status validate(const tutti_plan& plan) {
  TUTTI_TRY(validate_head(plan));
  for (uint32_t step = 0; step < plan.step_count; ++step) TUTTI_TRY(validate_step(plan, step));
  return {};
}

}  // namespace tutti::program
