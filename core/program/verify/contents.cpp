// SPDX-License-Identifier: Apache-2.0
#include "program/verify/contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "program/passes/alias.h"
#include "program/program.h"
#include "program/verify/touches.h"

namespace tutti::program {
namespace {

Status wrong(const std::string& where, std::string what) {
  return {Code::kFailedPrecondition, fmt::format("{}: {}", where, what)};
}

bool has(const tutti_plan_step& step, uint8_t flag) {
  return (step.flags & flag) != 0;
}

/// Ranks that hold the same wrong value are one counter-example, because one step has made the value.
struct WrongOutput {
  std::optional<StepPlace> place;
  std::string text;  ///< of the first rank
  std::vector<uint32_t> other_ranks;

  std::string others() const {
    constexpr size_t kMostNamed = 8;
    if (other_ranks.empty()) return {};
    const size_t named = std::min(other_ranks.size(), kMostNamed);
    std::string list = fmt::format("{}", fmt::join(std::span(other_ranks).first(named), ", "));
    if (named < other_ranks.size()) list += fmt::format(" and {} more", other_ranks.size() - named);
    return fmt::format("; the same on rank(s) {}", list);
  }
};

/// Only the root has the buffer: input of broadcast and scatter, output of reduce and gather.
bool only_root_has_input(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kScatter;
}
bool only_root_has_output(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kGather;
}

/// The size class of chunk `i` of a folding step's value.
uint32_t size_class(const Plan& plan, const tutti_plan_step& step, uint32_t i) {
  const tutti_plan_range range = plan.range(step);
  if (step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
    return plan.chunk_at(step.destination, step.destination_chunk, range.destination_stride, i) % plan.chunks;
  }
  return plan.chunk_at(step.source, step.source_chunk, range.source_stride, i) % plan.chunks;
}

const char* name_of(uint32_t buffer) {
  if (buffer == TUTTI_BUFFER_INPUT) return "input";
  return buffer == TUTTI_BUFFER_SCRATCH ? "scratch" : "output";
}

}  // namespace

Contents::Contents(std::span<const Plan> plans, const Connections& connections, bool in_place,
                   const std::optional<Rotation>& rotation)
    : Run(plans, connections, kUnlimited, 1),
      in_place_(in_place),
      rotation_(rotation),
      values_(plans[0].rank_count, rotation) {
  for (const Plan& plan : plans) {
    outputs_.emplace_back(plan.output_chunks());
    scratch_.emplace_back(plan.scratch_chunks);
  }
  messages_.resize(connections_.size());
}

Status Contents::on_send(uint32_t rank, uint32_t index) {
  if (values_.size() > kMaxIntervals) {
    undecided_ = true;
    return {Code::kUnsupported, fmt::format("the sets of contributions have more than {} intervals", kMaxIntervals)};
  }
  const At at = this->at(rank, index);
  const bool is_exchange = exchanges(at.step);
  if (is_exchange) {
    if (std::string what = overlap(at.plan, at.step, in_place_); !what.empty()) TUTTI_TRY(fault(at, std::move(what)));
  }
  if (!is_exchange && at.range.count > 1) TUTTI_TRY(check_lists(at));
  for (uint32_t i = 0; i < at.range.count; ++i) TUTTI_TRY(send_and_copy(at, i));
  return {};
}

/// Work of a step with chunk `i` of its lists, apart from the receives of a gather step.
Status Contents::send_and_copy(const At& at, uint32_t i) {
  const tutti_plan_step& step = at.step;
  const bool scatters = has(step, TUTTI_STEP_SCATTER);
  if (scatters) {
    for (uint32_t p = 0; p < step.send_count; ++p) {
      const uint32_t chunk = at.source(at.plan.peers[step.send_begin + p].chunk, i);
      TUTTI_ASSIGN(const Values::Id value, read(at, chunk));
      send(at, step.send_begin + p, value, chunk % at.plan.chunks);
    }
  }
  const bool sends_value = step.send_count > 0 && !scatters;
  const bool receives = step.recv_count > 0 && !has(step, TUTTI_STEP_GATHER) && !scatters;
  if (step.destination == TUTTI_BUFFER_NONE && !sends_value && !receives) return {};
  TUTTI_ASSIGN(const Values::Id value, fold(at, i));
  if (step.destination != TUTTI_BUFFER_NONE) TUTTI_TRY(write(at, step.destination, at.destination(i), value));
  if (!sends_value) return {};
  for (uint32_t p = 0; p < step.send_count; ++p) send(at, step.send_begin + p, value, size_class(at.plan, step, i));
  return {};
}

Status Contents::on_gather(uint32_t rank, uint32_t index) {
  const At at = this->at(rank, index);
  for (uint32_t p = 0; p < at.step.recv_count; ++p) {
    for (uint32_t i = 0; i < at.range.count; ++i) {
      const uint32_t chunk = at.gathered(at.plan.peers[at.step.recv_begin + p].chunk, i);
      TUTTI_ASSIGN(const Values::Id value, receive(at, at.step.recv_begin + p, chunk % at.plan.chunks));
      TUTTI_TRY(write(at, gather_buffer_of(at.step), chunk, value));
    }
  }
  return {};
}

/// Folds chunk `i` of the own source and, unless the step gathers, of the received messages, in ascending order of
/// ranks.
Result<Values::Id> Contents::fold(const At& at, uint32_t i) {
  operands_.clear();
  operand_ranks_.clear();
  bool own_pending = at.step.source != TUTTI_BUFFER_NONE;
  const auto add_own = [&]() -> Status {
    own_pending = false;
    TUTTI_ASSIGN(const Values::Id own, read(at, at.source(i)));
    operands_.push_back(own);
    operand_ranks_.push_back(at.rank);
    return {};
  };
  if (!has(at.step, TUTTI_STEP_GATHER)) {
    for (uint32_t p = at.step.recv_begin; p < at.step.recv_begin + uint32_t{at.step.recv_count}; ++p) {
      if (own_pending && at.rank < at.plan.peers[p].rank) TUTTI_TRY(add_own());
      TUTTI_ASSIGN(const Values::Id value, receive(at, p, size_class(at.plan, at.step, i)));
      operands_.push_back(value);
      operand_ranks_.push_back(at.plan.peers[p].rank);
    }
  }
  if (own_pending) TUTTI_TRY(add_own());
  const Values::Id value = values_.fold(operands_, operand_ranks_, at.step_id());
  return has(at.step, TUTTI_STEP_FINAL) ? values_.finalize(value, at.step_id()) : value;
}

Result<Values::Id> Contents::read(const At& at, uint32_t chunk) {
  if (at.step.source != TUTTI_BUFFER_INPUT) {
    const bool scratch = at.step.source == TUTTI_BUFFER_SCRATCH;
    const Cell& cell = scratch ? scratch_[at.rank][chunk] : outputs_[at.rank][chunk];
    if (cell.value != kNone) return cell.value;
    TUTTI_TRY(fault(at, fmt::format("reads {} chunk {} before it is written", name_of(at.step.source), chunk)));
    return unknown(at, chunk);
  }
  if (only_root_has_input(at.plan.collective) && at.rank != at.plan.root) {
    TUTTI_TRY(fault(at, fmt::format("reads the input, which only the root, rank {}, has", at.plan.root)));
  } else if (overwritten(at.plan, chunk)) {
    const uint32_t alias = aliased_output(at.plan, chunk);
    TUTTI_TRY(fault(at, fmt::format("reads input chunk {} after step {} has overwritten it (in place it is output "
                                    "chunk {})",
                                    chunk, outputs_[at.rank][alias].written_by, alias)));
    return outputs_[at.rank][alias].value;
  }
  return values_.input(at.rank, chunk, at.step_id());
}

/// Stands for a chunk that a step reads too early, once the fault is noted.
Values::Id Contents::unknown(const At& at, uint32_t chunk) {
  return values_.input(at.rank, chunk % at.plan.input_chunks(), at.step_id());
}

/// Fails, or notes a counter-example.
Status Contents::fault(const At& at, std::string what) const {
  if (all_ == nullptr) return wrong(at.text(), std::move(what));
  all_->push_back({StepPlace{at.rank, at.index}, fmt::format("{}: {}", at.text(), what)});
  return {};
}

Status Contents::write(const At& at, uint32_t buffer, uint32_t chunk, Values::Id value) {
  if (buffer == TUTTI_BUFFER_SCRATCH) {
    scratch_[at.rank][chunk] = {value, at.index};
    return {};
  }
  if (only_root_has_output(at.plan.collective) && at.rank != at.plan.root) {
    return fault(at, fmt::format("writes the output, which only the root, rank {}, has", at.plan.root));
  }
  outputs_[at.rank][chunk] = {value, at.index};
  return {};
}

/// Whether an input chunk shares its memory with an output chunk that now holds a different value. The output of a
/// reduction always differs: reading an input may scale it.
bool Contents::overwritten(const Plan& plan, uint32_t input_chunk) const {
  const uint32_t alias = aliased_output(plan, input_chunk);
  if (alias == kNone || outputs_[plan.rank][alias].value == kNone) return false;
  return reduces(plan.collective) ||
         !values_.differs_from_input(outputs_[plan.rank][alias].value, plan.rank, input_chunk).empty();
}

Contents::Access Contents::access(const At& at, uint32_t buffer, uint32_t chunk) const {
  return {place_of(at.plan, in_place_, buffer, chunk), buffer, chunk};
}

/// The executor may cut the chunks of a fold into parts, in any order. So a written chunk may be read only at the same
/// index of the lists.
Status Contents::check_lists(const At& at) const {
  const tutti_plan_step& step = at.step;
  if (step.source == TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE) return {};
  std::map<uint32_t, uint32_t> reader;  // by alias: index in the list
  for (uint32_t i = 0; i < at.range.count; ++i) reader[access(at, step.source, at.source(i)).place] = i;
  for (uint32_t i = 0; i < at.range.count; ++i) {
    const Access to = access(at, step.destination, at.destination(i));
    const auto found = reader.find(to.place);
    if (found == reader.end() || found->second == i) continue;
    return fault(at, fmt::format("reads {} chunk {} as chunk {} of its list, and writes it as chunk {}",
                                 name_of(to.buffer), to.chunk, found->second, i));
  }
  return {};
}

/// The next chunk that entry `peer` of the plan's peers sent. With a rotation, rank 0 sent it, and it is moved.
Result<Values::Id> Contents::receive(const At& at, uint32_t peer, uint32_t size_class) {
  Message message = messages_[connections_.incoming(at.rank, peer)].pop();
  const uint32_t sender = at.plan.peers[peer].rank;
  if (rotation_) {
    message.value = values_.moved(message.value, sender);
    message.size_class = rotation_->chunk(TUTTI_BUFFER_NONE, message.size_class, sender);
  }
  if (message.count != at.range.count) {
    return wrong(at.text(), fmt::format("takes {} chunk(s) in a message from rank {}, which sent {} in its step {}",
                                        at.range.count, sender, message.count, message.step));
  }
  if (message.size_class != size_class) {
    TUTTI_TRY(
        fault(at, fmt::format("takes what rank {} sent in its step {} as chunk {} of a block, but it was chunk {}",
                              sender, message.step, size_class, message.size_class)));
  }
  return message.value;
}

void Contents::send(const At& at, uint32_t peer, Values::Id value, uint32_t size_class) {
  messages_[connections_.outgoing(at.rank, peer)].push({value, size_class, at.index, at.range.count});
}

/// The output chunk that shares the memory of an input chunk; kNone out of place and where there is none.
uint32_t Contents::aliased_output(const Plan& plan, uint32_t input_chunk) const {
  const uint32_t place = place_of(plan, in_place_, TUTTI_BUFFER_INPUT, input_chunk);
  return place < plan.output_chunks() ? place : kNone;
}

Status Contents::check_outputs() {
  std::vector<WrongOutput> wrong_outputs;
  std::map<std::tuple<Values::Id, uint32_t, std::string>, size_t> known;  // numbers in wrong_outputs
  for (const Plan& plan : plans_) {
    if (plan.collective == Collective::kSendRecv) continue;
    if (only_root_has_output(plan.collective) && plan.rank != plan.root) continue;
    for (uint32_t chunk = 0; chunk < plan.output_chunks(); ++chunk) {
      const std::string what = wrong_output(plan, chunk);
      if (what.empty()) continue;
      const uint32_t step = outputs_[plan.rank][chunk].written_by;
      const std::string where = fmt::format("rank {} output chunk {}", plan.rank, chunk);
      const auto place = step == kNone ? std::nullopt : std::optional(StepPlace{plan.rank, step});
      if (all_ == nullptr) {
        if (place) failed_at_ = place;
        return wrong(where, what);
      }
      const auto [at, is_new] = known.try_emplace({outputs_[plan.rank][chunk].value, chunk, what}, known.size());
      if (is_new) {
        wrong_outputs.push_back({place, fmt::format("{}: {}", where, what), {}});
      } else {
        wrong_outputs[at->second].other_ranks.push_back(plan.rank);
      }
    }
  }
  for (const WrongOutput& output : wrong_outputs) all_->push_back({output.place, output.text + output.others()});
  return {};
}

/// "" if an output chunk holds the value that its collective demands.
std::string Contents::wrong_output(const Plan& plan, uint32_t chunk) {
  const Values::Id value = outputs_[plan.rank][chunk].value;
  if (value == kNone) return "is never written";
  const uint32_t block = chunk / plan.chunks;
  const uint32_t own_part = plan.rank * plan.chunks + chunk % plan.chunks;
  switch (plan.collective) {
    case Collective::kReduceScatter:
      return values_.differs_from_reduction(value, own_part);
    case Collective::kAllGather:
    case Collective::kGather:
      return values_.differs_from_input(value, block, chunk % plan.chunks);
    case Collective::kBroadcast:
      return values_.differs_from_input(value, plan.root, chunk);
    case Collective::kAllToAll:
      return values_.differs_from_input(value, block, own_part);
    case Collective::kScatter:
      return values_.differs_from_input(value, plan.root, own_part);
    case Collective::kAllReduce: {
      if (std::string what = values_.differs_from_reduction(value, chunk); !what.empty()) return what;
      return wrong_expression(chunk, value);
    }
    default:
      return values_.differs_from_reduction(value, chunk);
  }
}

/// All ranks must compute an output chunk by the same expression. With a rotation, it is enough if rank 1 does what
/// rank 0 does: moved by one rank again and again, both say the same of all further ranks.
std::string Contents::wrong_expression(uint32_t chunk, Values::Id value) {
  if (!rotation_) {
    const Values::Id first = outputs_[0][chunk].value;
    if (first == kNone || values_.expression(value) == values_.expression(first)) return "";
    return "is folded in another order than on rank 0, so that bits may differ";
  }
  const uint32_t source = rotation_->chunk(TUTTI_BUFFER_OUTPUT, chunk, rotation_->rank_count - 1);
  const Values::Id of_one = outputs_[0][source].value;
  if (of_one == kNone || values_.expression(value) == values_.expression(values_.moved(of_one, 1))) return "";
  undecided_ = values_.has_wide_folds();
  return "is folded in another order than on rank 1, so that bits may differ";
}

}  // namespace tutti::program
