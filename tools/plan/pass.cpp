// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/pass.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "program/describe.h"
#include "program/encode.h"
#include "program/in_one_strand.h"
#include "program/lower.h"
#include "program/lower_strands.h"
#include "program/passes/alias.h"
#include "program/passes/as_copies.h"
#include "program/passes/direct_store.h"
#include "program/passes/fit_slots.h"
#include "program/passes/fuse_one_hop.h"
#include "program/passes/number_messages.h"
#include "program/passes/overlap_loops.h"
#include "program/passes/split_messages.h"
#include "program/passes/zero_copy.h"
#include "program/program.h"
#include "program/repeat.h"

namespace tutti::tools {
namespace {

using program::Plan;

/// The plans that a pass works on.
struct Input {
  const program::PlanFile& file;
  Plan own;  ///< the plan of the rank, without repeats and strands
  uint32_t rank;
  bool in_place;
};

/// The plans of all ranks, without repeats.
Result<std::vector<Plan>> written_out(const Input& input) {
  program::Extent extent;
  for (const Plan& plan : input.file.plans) extent.add(plan);
  if (extent.steps > program::kPatientLimits.messages) {
    return Status(Code::kUnsupported,
                  fmt::format("the plans of all ranks have more than {} steps", program::kPatientLimits.messages));
  }
  std::vector<Plan> plans;
  for (const Plan& plan : input.file.plans) {
    TUTTI_ASSIGN(plans.emplace_back(), program::unroll(plan));
  }
  return plans;
}

/// The plans of all ranks, without repeats and strands.
Result<std::vector<Plan>> all_plans(const Input& input) {
  TUTTI_ASSIGN(std::vector<Plan> plans, written_out(input));
  if (!program::any_strands(plans)) return plans;
  TUTTI_ASSIGN(program::OneStrandSet listed, program::in_one_strand(plans));
  return std::move(listed.plans);
}

/// The plans of all ranks after split_messages.
Result<std::vector<Plan>> split_plans(const Input& input) {
  TUTTI_ASSIGN(std::vector<Plan> plans, all_plans(input));
  for (Plan& plan : plans) {
    TUTTI_ASSIGN(plan, program::split_messages(plan));
  }
  return plans;
}

/// The plans of all ranks as kernels run them, with the fewest slots that a connection of GPUs has.
Result<std::vector<Plan>> kernel_plans(const Input& input) {
  if (!program::has_long_messages(input.own)) return all_plans(input);
  TUTTI_ASSIGN(std::vector<Plan> plans, all_plans(input));
  return program::split_and_fit(std::move(plans), program::kLeastSlots);
}

/// The plan of the rank as kernels run it.
Result<Plan> kernel_plan(const Input& input) {
  if (!program::has_long_messages(input.own)) return input.own;
  TUTTI_ASSIGN(std::vector<Plan> plans, kernel_plans(input));
  return std::move(plans[input.rank]);
}

std::string before_and_after(const std::string& before, const std::string& after) {
  return fmt::format("before:\n{}\nafter:\n{}", before, after);
}

/// "input 0.3": chunk 3 of block 0.
std::string place(uint8_t buffer, uint32_t block, uint32_t chunk) {
  const char* name = buffer == TUTTI_BUFFER_INPUT ? "input" : buffer == TUTTI_BUFFER_SCRATCH ? "scratch" : "output";
  return fmt::format("{} {}.{}", name, block, chunk);
}

enum class End { kSender, kReceiver };

/// Only the sender of a direct store has the place in the receiver's output.
std::string peers_text(std::span<const tutti_program_peer> peers, bool chunked, End end) {
  std::string text;
  for (const tutti_program_peer& peer : peers) {
    text += fmt::format(" rank {} message {}", peer.rank, peer.message);
    if (chunked) text += fmt::format(" block {}.{}", peer.block, peer.chunk);
    if (peer.to_output != 0 && end == End::kSender) {
      text += fmt::format(" stored to output {}.{}", peer.output_block, peer.output_chunk);
    }
    if (peer.to_output != 0 && end == End::kReceiver) text += " stored by the sender";
    text += ',';
  }
  if (!text.empty()) text.pop_back();
  return text;
}

/// " after 2 steps of strand 0;" for each strand that a step waits for.
std::string waits_text(uint64_t after) {
  std::string text;
  for (uint32_t strand = 0; strand < TUTTI_CUDA_MAX_STRANDS; ++strand) {
    const uint64_t steps = after >> strand * 8 & 0xff;
    if (steps > 0) text += fmt::format(" after {} step{} of strand {};", steps, steps == 1 ? "" : "s", strand);
  }
  return text;
}

/// "strand 1" before its first step.
std::string strand_text(const program::Strands& strands, size_t step) {
  for (uint32_t i = 0; i < strands.strand_count; ++i) {
    if (strands.strands[i].first_step == step) return fmt::format("strand {}\n", i);
  }
  return {};
}

/// One line per step of a program. `strands`: null if one CTA of each channel runs all steps.
std::string text_of(const program::Program& program, const program::Strands* strands = nullptr) {
  const uint32_t scratch = program::scratch_blocks(program.scratch_chunks, program.chunks);
  std::string text = fmt::format("{} steps, {} chunk(s) per block, {} message(s) per loop on a connection{}\n",
                                 program.steps.size(), program.chunks, program.messages,
                                 scratch > 0 ? fmt::format(", {} block(s) of scratch memory", scratch) : "");
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const tutti_program_step& step = program.steps[i];
    const auto has = [&](uint32_t flag) { return (step.flags & flag) != 0; };
    if (strands != nullptr) text += strand_text(*strands, i);
    text += fmt::format("{:>5} ", i);
    if (strands != nullptr) text += waits_text(strands->after[i]);
    if (step.recv_count > 0) {
      const char* const gathers = has(TUTTI_STEP_TO_SCRATCH) ? "gather to scratch" : "gather";
      text += fmt::format(" {}{};", has(TUTTI_STEP_GATHER) ? gathers : "recv",
                          peers_text(program.recv(step), has(TUTTI_STEP_GATHER), End::kReceiver));
    }
    if (step.source != TUTTI_BUFFER_NONE) {
      text += fmt::format(" own {};", place(step.source, step.source_block, step.source_chunk));
    }
    if (step.destination != TUTTI_BUFFER_NONE) {
      text += fmt::format(" to {};", place(step.destination, step.destination_block, step.destination_chunk));
    }
    if (step.send_count > 0) {
      text += fmt::format(" {}{};", has(TUTTI_STEP_SCATTER) ? "scatter" : "send",
                          peers_text(program.send(step), has(TUTTI_STEP_SCATTER), End::kSender));
    }
    if (has(TUTTI_STEP_FINAL)) text += " final;";
    if (has(TUTTI_CUDA_STEP_AFTER)) text += " after;";
    if (has(TUTTI_CUDA_STEP_MEET)) text += " meet;";
    if (has(TUTTI_CUDA_STEP_SIGNAL)) text += " signal;";
    if (text.back() == ';') text.pop_back();
    text += '\n';
  }
  return text;
}

/// The text of a plan, with a mark on each step whose value is stable.
std::string with_marks(const Plan& plan) {
  std::istringstream lines(program::to_text(plan));
  std::string line;
  std::getline(lines, line);
  std::string text = line + '\n';
  for (size_t i = 0; std::getline(lines, line); ++i) {
    const bool stable = i < plan.steps.size() && (plan.steps[i].flags & TUTTI_STEP_STABLE) != 0;
    text += line + (stable ? "   stable\n" : "\n");
  }
  return text;
}

Result<std::string> zero_copy(const Input& input) {
  Plan marked = input.own;
  program::mark_stable(marked, input.in_place);
  return before_and_after(program::to_text(input.own), with_marks(marked));
}

Result<std::string> split_messages(const Input& input) {
  TUTTI_ASSIGN(const Plan split, program::split_messages(input.own));
  return before_and_after(program::to_text(input.own), program::to_text(split));
}

Result<std::string> fit_slots(const Input& input) {
  TUTTI_ASSIGN(const std::vector<Plan> split, split_plans(input));
  TUTTI_ASSIGN(const std::vector<Plan> fit, program::fit_slots(split, program::kLeastSlots));
  return before_and_after(program::to_text(split[input.rank]), program::to_text(fit[input.rank]));
}

Result<std::string> lower(const Input& input) {
  TUTTI_ASSIGN(const Plan plan, kernel_plan(input));
  TUTTI_ASSIGN(const program::Program lowered, program::lower(plan, input.in_place));
  return before_and_after(program::to_text(plan), text_of(lowered));
}

Result<std::string> lower_strands(const Input& input) {
  TUTTI_ASSIGN(const std::vector<Plan> plans, written_out(input));
  if (!program::any_strands(plans)) return Status(Code::kUnsupported, "no plan has strands");
  if (std::string why = program::why_in_lists(plans); !why.empty()) {
    return Status(Code::kUnsupported, "the strands run as a list: " + why);
  }
  const Plan& own = plans[input.rank];
  TUTTI_ASSIGN(const program::Program lowered, program::lower(own, input.in_place));
  const program::Strands strands = program::lower_strands(own);
  return before_and_after(program::to_text(own), text_of(lowered, &strands));
}

/// The plans and programs of all ranks, by rank.
struct Lowered {
  std::vector<Plan> plans;
  std::vector<program::Program> programs;
};
Result<Lowered> lowered_all(const Input& input) {
  TUTTI_ASSIGN(const Plan own, kernel_plan(input));
  TUTTI_TRY(program::lower(own, input.in_place).status());  // a limit of kernels comes before one of this tool
  Lowered all;
  TUTTI_ASSIGN(all.plans, kernel_plans(input));
  for (const Plan& plan : all.plans) {
    TUTTI_ASSIGN(all.programs.emplace_back(), program::lower(plan, input.in_place));
  }
  return all;
}

/// The chunks of one buffer that share memory with an earlier chunk, one line each.
void add_shared(const Input& input, uint8_t buffer, uint32_t chunks, std::map<uint32_t, std::string>& known,
                std::string& text) {
  for (uint32_t i = 0; i < chunks; ++i) {
    const std::string name = place(buffer, i / input.own.chunks, i % input.own.chunks);
    const auto [first, is_new] = known.try_emplace(program::place_of(input.own, input.in_place, buffer, i), name);
    if (!is_new) text += fmt::format("  {} is {}\n", name, first->second);
  }
}

Result<std::string> alias(const Input& input) {
  std::map<uint32_t, std::string> known;  // the first chunk of each number
  std::string shared;
  add_shared(input, TUTTI_BUFFER_INPUT, input.own.input_chunks(), known, shared);
  add_shared(input, TUTTI_BUFFER_OUTPUT, input.own.output_chunks(), known, shared);
  add_shared(input, TUTTI_BUFFER_SCRATCH, input.own.scratch_chunks, known, shared);
  return before_and_after(program::to_text(input.own), shared.empty() ? "  no chunks share memory\n" : shared);
}

/// The program before and after the numbers of its messages. The pass is the last part of encode().
Result<std::string> number_messages(const Input& input) {
  program::Program encoded = program::encode(input.own);
  const program::Program numbered = encoded;
  encoded.messages = 0;
  for (tutti_program_peer& peer : encoded.peers) peer.message = 0;
  return before_and_after(text_of(encoded), text_of(numbered));
}

Result<std::string> direct_store(const Input& input) {
  TUTTI_ASSIGN(Lowered all, lowered_all(input));
  const std::string before = text_of(all.programs[input.rank]);
  TUTTI_TRY(program::store_directly(all.plans, all.programs));
  return before_and_after(before, text_of(all.programs[input.rank]));
}

/// The stages of the steps of a program, and the lags of its messages.
std::string stages_text(const program::Program& program) {
  std::string text = fmt::format("{} stage(s), up to {} wave(s) from send to receive, {} message(s) per loop\n",
                                 program.stages, program.lag, program.messages);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const tutti_program_step& step = program.steps[i];
    text += fmt::format("{:>5}  stage {}", i, step.stage);
    if (step.recv_count > 0 && program::exchanges(step)) text += fmt::format(", receives in stage {}", step.recv_stage);
    for (const tutti_program_peer& from : program.recv(step)) {
      text += fmt::format("; from rank {} {} wave(s) after it was sent", from.rank, from.lag);
    }
    text += '\n';
  }
  return text;
}

/// The layout has slots for every program. So the result does not depend on a protocol.
Result<std::string> overlap_loops(const Input& input) {
  TUTTI_ASSIGN(Lowered all, lowered_all(input));
  program::Programs programs = {std::move(all.programs)};
  const std::string before = text_of(programs[0][input.rank]);
  tutti_slot_layout layout{};
  layout.overlaps = 1;
  layout.chunk_slots = 1;
  layout.slot_count = UINT32_MAX;
  program::even_messages(programs);
  program::overlap_loops(programs, layout);
  return before_and_after(before, stages_text(programs[0][input.rank]));
}

Result<std::string> fuse_one_hop(const Input& input) {
  TUTTI_ASSIGN(const Plan plan, kernel_plan(input));
  TUTTI_ASSIGN(const program::Program lowered, program::lower(plan, input.in_place));
  const auto hop = program::one_hop(lowered);
  if (!hop) return Status(Code::kUnsupported, "the program is not of one hop: it runs step by step");
  std::string after =
      fmt::format("{}{}\n", hop->folds != 0 ? "folds" : "exchanges", hop->is_final != 0 ? ", final" : "");
  if (hop->own != TUTTI_CUDA_OWN_UNUSED) {
    after += fmt::format("  own input block {} -> output block {}\n", hop->own_from, hop->own_to);
  }
  for (uint32_t i = 0; i < hop->send_count; ++i) {
    after += fmt::format("  input block {} -> rank {}\n", hop->sends[i].at, hop->send_ranks[i]);
  }
  for (uint32_t i = 0; i < hop->recv_count; ++i) {
    after += fmt::format("  rank {} -> output block {}\n", hop->recv_ranks[i], hop->receives[i].at);
  }
  return before_and_after(text_of(lowered), after);
}

Result<std::string> as_copies(const Input& input) {
  TUTTI_ASSIGN(const std::vector<Plan> plans, all_plans(input));
  TUTTI_ASSIGN(const program::Copies copies, program::copies(plans, input.rank, input.in_place));
  std::string after;
  if (copies.own) after += fmt::format("  input block {} -> output block {}\n", copies.own->from, copies.own->to);
  for (const program::Copy& copy : copies.list) {
    after += fmt::format("  input block {} -> output block {} of rank {}\n", copy.from, copy.to, copy.peer);
  }
  return before_and_after(program::to_text(input.own), after);
}

struct Pass {
  const char* name;
  Result<std::string> (*show)(const Input&);
};
constexpr Pass kPasses[] = {{"alias", alias},
                            {"zero_copy", zero_copy},
                            {"split_messages", split_messages},
                            {"fit_slots", fit_slots},
                            {"number_messages", number_messages},
                            {"lower", lower},
                            {"lower_strands", lower_strands},
                            {"direct_store", direct_store},
                            {"overlap_loops", overlap_loops},
                            {"fuse_one_hop", fuse_one_hop},
                            {"as_copies", as_copies}};
/// The passes that make the plan which the other passes take.
constexpr const char* kUnroll = "unroll";
constexpr const char* kOrderStrands = "order_strands";

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names = {kUnroll, kOrderStrands};
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

Result<std::string> show_pass(const std::string& name, const program::PlanFile& file, uint32_t rank, bool in_place) {
  TUTTI_ASSIGN(const Plan written_out, program::unroll(file.plans[rank]));
  if (name == kUnroll) return before_and_after(program::to_text(file.plans[rank]), program::to_text(written_out));
  Input input{file, {}, rank, in_place};
  const auto ranks = static_cast<uint32_t>(file.plans.size());
  TUTTI_ASSIGN(input.own, program::in_one_strand(ranks, program::source_of(file.plans), rank, program::kPatientLimits));
  if (name == kOrderStrands) return before_and_after(program::to_text(written_out), program::to_text(input.own));
  for (const Pass& pass : kPasses) {
    if (name == pass.name) return pass.show(input);
  }
  return Status(Code::kNotFound, fmt::format("no pass is called {}", name));
}

}  // namespace tutti::tools
