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

namespace {

/// The number of each step with the repeats written out, in the first round.
std::vector<uint64_t> first_numbers(const Plan& plan) {
  std::vector<uint64_t> numbers;
  uint64_t later_rounds = 0;  // steps of later rounds of the repeats before
  size_t next = 0;
  for (const tutti_plan_repeat& repeat : plan.repeats) {
    for (; next < size_t{repeat.first_step} + repeat.step_count; ++next) numbers.push_back(next + later_rounds);
    later_rounds += uint64_t{repeat.step_count} * (repeat.rounds - 1);
  }
  for (; next < plan.steps.size(); ++next) numbers.push_back(next + later_rounds);
  return numbers;
}

/// The repeat that a step is in; null outside of all repeats.
const tutti_plan_repeat* repeat_of(const Plan& plan, uint32_t step) {
  const auto holds = [&](const tutti_plan_repeat& repeat) {
    return step >= repeat.first_step && step - repeat.first_step < repeat.step_count;
  };
  const auto found = std::find_if(plan.repeats.begin(), plan.repeats.end(), holds);
  return found == plan.repeats.end() ? nullptr : &*found;
}

/// The steps that a step waits for. A step outside of all repeats waits for the last round.
std::string waits_text(const Plan& plan, uint32_t step, const std::vector<uint64_t>& numbers) {
  std::vector<std::string> after;
  for (const tutti_plan_wait& wait : plan.waits_of(step)) {
    const tutti_plan_repeat* const repeat = repeat_of(plan, step) == nullptr ? repeat_of(plan, wait.after) : nullptr;
    const uint64_t rounds = repeat == nullptr ? 0 : uint64_t{repeat->step_count} * (repeat->rounds - 1);
    after.push_back(fmt::format("{}", numbers[wait.after] + rounds));
  }
  return after.empty() ? "" : "   after " + joined(after, ", ");
}

std::string steps_text(const Plan& plan) {
  const std::vector<uint64_t> numbers = first_numbers(plan);
  std::string text;
  size_t strand = 0;
  size_t repeat = 0;
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    if (strand < plan.strands.size() && plan.strands[strand].first_step == index) {
      text += fmt::format("       strand {}:\n", strand++);
    }
    while (repeat < plan.repeats.size() && index >= plan.repeats[repeat].first_step + plan.repeats[repeat].step_count) {
      ++repeat;
    }
    const bool repeats = repeat < plan.repeats.size() && index >= plan.repeats[repeat].first_step;
    if (repeats && index == plan.repeats[repeat].first_step) {
      const uint32_t rounds = plan.repeats[repeat].rounds;
      text += fmt::format("       {} time(s), k from 0 to {}:\n", rounds, rounds - 1);
    }
    const tutti_plan_step& step = plan.steps[index];
    text += fmt::format("{:>5}  {}{:<19} {}{}{}\n", numbers[index], repeats ? "  " : "", primitive_name(plan, step),
                        step_text(plan, step), has(step, TUTTI_STEP_FINAL) ? "   final" : "",
                        waits_text(plan, index, numbers));
  }
  return text;
}

}  // namespace

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
  return text + '\n' + steps_text(plan);
}

}  // namespace tutti::program
