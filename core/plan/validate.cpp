// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "plan/plan.h"

namespace tutti::plan {
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
  StepChecker(const tutti_plan& plan, const tutti_plan_step& step)
      : plan_(plan),
        step_(step),
        gather_((step.flags & TUTTI_STEP_GATHER) != 0),
        scatter_((step.flags & TUTTI_STEP_SCATTER) != 0),
        final_((step.flags & TUTTI_STEP_FINAL) != 0) {}

  Status check() const {
    TUTTI_TRY(check_codes());
    TUTTI_TRY(check_chunks());
    TUTTI_TRY(check_peers("recv", step_.recv_begin, step_.recv_count, gather_, gather_ || scatter_, output_chunks()));
    TUTTI_TRY(check_peers("send", step_.send_begin, step_.send_count, scatter_, gather_ || scatter_, source_chunks()));
    TUTTI_TRY(check_value());
    return check_flags();
  }

 private:
  uint32_t output_chunks() const { return plan_.output_blocks * plan_.chunks; }
  uint32_t source_chunks() const {
    return step_.source == TUTTI_BUFFER_INPUT ? plan_.input_blocks * plan_.chunks : output_chunks();
  }
  bool relays() const {
    return step_.source == TUTTI_BUFFER_NONE && step_.destination == TUTTI_BUFFER_NONE && !gather_ &&
           step_.recv_count > 0;
  }

  Status check_codes() const {
    if (step_.source > TUTTI_BUFFER_OUTPUT) return invalid(fmt::format("source: {} is no buffer", step_.source));
    if (step_.destination != TUTTI_BUFFER_NONE && step_.destination != TUTTI_BUFFER_OUTPUT) {
      return invalid(fmt::format("destination: {} is neither none nor output", step_.destination));
    }
    if ((step_.flags & ~(TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER | TUTTI_STEP_FINAL)) != 0) {
      return invalid(fmt::format("flags: {:#x} holds unknown bits", step_.flags));
    }
    if (step_.reserved != 0) return invalid("reserved: must be 0");
    return {};
  }

  Status check_chunks() const {
    if (step_.source != TUTTI_BUFFER_NONE) {
      TUTTI_TRY(check_below("source chunk", step_.source_chunk, source_chunks()));
    } else {
      TUTTI_TRY(check_below("source chunk without a source", step_.source_chunk, relays() ? plan_.chunks : 1));
    }
    if (step_.destination == TUTTI_BUFFER_NONE) {
      return check_below("destination chunk without a destination", step_.destination_chunk, 1);
    }
    TUTTI_TRY(check_below("destination chunk", step_.destination_chunk, output_chunks()));
    if (step_.source != TUTTI_BUFFER_NONE &&
        step_.source_chunk % plan_.chunks != step_.destination_chunk % plan_.chunks) {
      return invalid(fmt::format("source chunk {} and destination chunk {} differ in size (in c % {})",
                                 step_.source_chunk, step_.destination_chunk, plan_.chunks));
    }
    return {};
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
  TUTTI_TRY(check_below("step_count", plan.step_count, kMaxSteps + 1));
  if (plan.step_count > 0 && plan.steps == nullptr) return invalid("steps: null, but step_count is not 0");
  if (plan.peer_count > 0 && plan.peers == nullptr) return invalid("peers: null, but peer_count is not 0");
  return {};
}

Status validate_step(const tutti_plan& plan, uint32_t step) {
  return StepChecker(plan, plan.steps[step]).check().with_context(fmt::format("step {}", step));
}

Status validate(const tutti_plan& plan) {
  TUTTI_TRY(validate_head(plan));
  for (uint32_t step = 0; step < plan.step_count; ++step) TUTTI_TRY(validate_step(plan, step));
  return {};
}

}  // namespace tutti::plan
