// SPDX-License-Identifier: Apache-2.0
#include "program/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/file/affine.h"
#include "program/repeat.h"

namespace tutti::program {
namespace {

bool has(const tutti_plan_step& step, uint8_t flag) {
  return (step.flags & flag) != 0;
}

std::string_view word_of(uint8_t buffer) {
  if (buffer == TUTTI_BUFFER_INPUT) return "input";
  return buffer == TUTTI_BUFFER_SCRATCH ? "scratch" : "output";
}

/// "input[2]" and lists as chunks_text() writes them. In a repeat, "input[2 - k]" and "input[2-5] - k".
std::string buffer_name(const Plan& plan, uint8_t buffer, uint32_t first, uint32_t stride, uint32_t count,
                        uint32_t growth) {
  const std::string number = affine_text(first, growth, plan.chunks_of(buffer));
  if (count == 1) return fmt::format("{}[{}]", word_of(buffer), number);
  const std::string grows = number.substr(fmt::format("{}", first).size());
  return fmt::format("{}[{}]{}", word_of(buffer), chunks_text(plan, buffer, first, stride, count), grows);
}

std::string source_name(const Plan& plan, const tutti_plan_step& step, uint32_t first, uint32_t growth) {
  const tutti_plan_range range = plan.range(step);
  return buffer_name(plan, step.source, first, range.source_stride, range.count, growth);
}
std::string destination_name(const Plan& plan, const tutti_plan_step& step, uint8_t buffer, uint32_t first,
                             uint32_t growth) {
  const tutti_plan_range range = plan.range(step);
  return buffer_name(plan, buffer, first, range.destination_stride, range.count, growth);
}

std::string rank_name(const Plan& plan, uint32_t rank, uint32_t growth) {
  return "rank " + affine_text(rank, growth, plan.rank_count);
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

/// "rank 0 + input[2] + rank 5": the operands in the order in which they are folded.
std::string operands_text(const Plan& plan, const tutti_plan_step& step) {
  std::vector<std::string> parts;
  bool own_pending = step.source != TUTTI_BUFFER_NONE;
  const auto add_own = [&] {
    parts.push_back(source_name(plan, step, step.source_chunk, plan.growth(step).source_chunk));
    own_pending = false;
  };
  if (!has(step, TUTTI_STEP_GATHER)) {
    for (const tutti_plan_peer& peer : plan.recv(step)) {
      if (own_pending && plan.rank < peer.rank) add_own();
      parts.push_back(rank_name(plan, peer.rank, plan.growth(step).recv_rank));
    }
  }
  if (own_pending) add_own();
  return joined(parts, " + ");
}

std::string targets_text(const Plan& plan, const tutti_plan_step& step) {
  std::vector<std::string> parts;
  if (step.destination != TUTTI_BUFFER_NONE) {
    parts.push_back(
        destination_name(plan, step, step.destination, step.destination_chunk, plan.growth(step).destination_chunk));
  }
  if (!has(step, TUTTI_STEP_SCATTER)) {
    for (const tutti_plan_peer& peer : plan.send(step)) {
      parts.push_back(rank_name(plan, peer.rank, plan.growth(step).send_rank));
    }
  }
  return joined(parts, ", ");
}

}  // namespace

std::string chunks_text(const Plan& plan, uint8_t buffer, uint32_t first, uint32_t stride, uint32_t count) {
  constexpr uint32_t kFew = 4;
  const auto at = [&](uint32_t i) { return plan.chunk_at(buffer, first, stride, i); };
  const uint32_t last = at(count - 1);
  if (count == 1) return fmt::format("{}", first);
  if (stride == 1 && last > first) return fmt::format("{}-{}", first, last);
  std::vector<uint32_t> few;
  for (uint32_t i = 0; i < std::min(count, kFew); ++i) few.push_back(at(i));
  if (count <= kFew) return fmt::format("{}", fmt::join(few, ","));
  return fmt::format("{},{}...{}", few[0], few[1], last);
}

std::string step_text(const Plan& plan, const tutti_plan_step& step) {
  const tutti_plan_growth growth = plan.growth(step);
  std::vector<std::string> parts;
  if (const std::string targets = targets_text(plan, step); !targets.empty()) {
    parts.push_back(operands_text(plan, step) + " -> " + targets);
  } else if (!has(step, TUTTI_STEP_GATHER) && step.recv_count > 0) {
    parts.push_back(operands_text(plan, step) + " -> nothing");
  }
  if (has(step, TUTTI_STEP_SCATTER)) {
    for (const tutti_plan_peer& peer : plan.send(step)) {
      parts.push_back(fmt::format("{} -> {}", source_name(plan, step, peer.chunk, growth.send_chunk),
                                  rank_name(plan, peer.rank, growth.send_rank)));
    }
  }
  if (has(step, TUTTI_STEP_GATHER)) {
    for (const tutti_plan_peer& peer : plan.recv(step)) {
      parts.push_back(fmt::format("{} -> {}", rank_name(plan, peer.rank, growth.recv_rank),
                                  destination_name(plan, step, gather_buffer_of(step), peer.chunk, growth.recv_chunk)));
    }
  }
  return joined(parts, "; ");
}

std::string primitive_name(const Plan& plan, const tutti_plan_step& step) {
  const bool copies = step.destination != TUTTI_BUFFER_NONE;
  std::vector<std::string_view> words;
  if (has(step, TUTTI_STEP_GATHER) || has(step, TUTTI_STEP_SCATTER)) {
    if (copies) words.emplace_back("copy");
    if (step.send_count > 0) words.emplace_back(has(step, TUTTI_STEP_SCATTER) ? "scatter" : "send");
    if (step.recv_count > 0) words.emplace_back("gather");
  } else {
    const size_t operands = plan.recv(step).size() + (step.source != TUTTI_BUFFER_NONE ? 1 : 0);
    if (step.recv_count > 0) words.emplace_back("recv");
    if (operands > 1) words.emplace_back("reduce");
    if (copies && (operands > 1 || step.recv_count == 0 || step.send_count > 0)) words.emplace_back("copy");
    if (step.send_count > 0) words.emplace_back("send");
  }
  if (words.empty()) return "nothing";
  std::string name(words.front());
  for (std::string_view word : std::span(words).subspan(1)) {
    name += static_cast<char>(word.front() - 'a' + 'A');
    name += word.substr(1);
  }
  return name;
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("{}, rank {} of {}, channel {}, {} chunk(s) per block", to_string(plan.collective),
                                 plan.rank, plan.rank_count, plan.channel, plan.chunks);
  if (has_root(plan.collective)) text += fmt::format(", root {}", plan.root);
  if (plan.scratch_chunks > 0) text += fmt::format(", {} scratch chunk(s)", plan.scratch_chunks);
  if (plan.message_chunks > 1) text += fmt::format(", up to {} chunks per message", plan.message_chunks);
  if (!plan.repeats.empty()) {
    text += fmt::format(", {} steps in {} bytes, {} steps with the repeats written out", plan.steps.size(),
                        size_bytes(plan), unrolled_steps(plan));
  }
  text += '\n';
  const auto add = [&](uint64_t number, const tutti_plan_step& step, const char* indent) {
    text += fmt::format("{:>5}  {}{:<19} {}{}\n", number, indent, primitive_name(plan, step), step_text(plan, step),
                        has(step, TUTTI_STEP_FINAL) ? "   final" : "");
  };
  uint64_t number = 0;
  size_t next = 0;
  for (const tutti_plan_repeat& repeat : plan.repeats) {
    for (; next < repeat.first_step; ++next) add(number++, plan.steps[next], "");
    text += fmt::format("       {} time(s), k from 0 to {}:\n", repeat.rounds, repeat.rounds - 1);
    for (uint32_t i = 0; i < repeat.step_count; ++i, ++next) add(number + i, plan.steps[next], "  ");
    number += uint64_t{repeat.step_count} * repeat.rounds;
  }
  for (; next < plan.steps.size(); ++next) add(number++, plan.steps[next], "");
  return text;
}

}  // namespace tutti::program
