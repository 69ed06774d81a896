// SPDX-License-Identifier: Apache-2.0
#include "plan/contents.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::plan {
namespace {

Status wrong(const std::string& where, std::string what) {
  return {Code::kFailedPrecondition, fmt::format("{}: {}", where, what)};
}

bool has(const tutti_plan_step& step, uint8_t flag) {
  return (step.flags & flag) != 0;
}

/// Only the root has the buffer: input of broadcast and scatter, output of reduce and gather.
bool only_root_has_input(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kScatter;
}
bool only_root_has_output(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kGather;
}

/// The size class of a folding step's value.
uint32_t size_class(const Plan& plan, const tutti_plan_step& step) {
  const bool from_destination = step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
  return (from_destination ? step.destination_chunk : step.source_chunk) % plan.chunks;
}

}  // namespace

Contents::Contents(std::span<const Plan> plans, const Connections& connections, bool in_place)
    : Run(plans, connections, kUnlimited, 1), in_place_(in_place), values_(static_cast<uint32_t>(plans.size())) {
  for (const Plan& plan : plans) outputs_.emplace_back(plan.output_chunks());
  messages_.resize(connections_.size());
}

Status Contents::on_send(uint32_t rank, uint32_t index) {
  const At at = this->at(rank, index);
  const tutti_plan_step& step = at.step;
  const bool exchanges = has(step, TUTTI_STEP_GATHER) || has(step, TUTTI_STEP_SCATTER);
  if (exchanges) TUTTI_TRY(check_overlap(at));
  if (has(step, TUTTI_STEP_SCATTER)) {
    for (uint32_t i = 0; i < step.send_count; ++i) {
      const uint32_t index_of_chunk = at.plan.peers[step.send_begin + i].chunk;
      TUTTI_ASSIGN(const Values::Id chunk, read(at, index_of_chunk));
      send(at, step.send_begin + i, chunk, index_of_chunk % at.plan.chunks);
    }
  }
  const bool sends_value = step.send_count > 0 && !has(step, TUTTI_STEP_SCATTER);
  const bool receives = step.recv_count > 0 && !exchanges;
  if (step.destination == TUTTI_BUFFER_NONE && !sends_value && !receives) return {};
  TUTTI_ASSIGN(const Values::Id value, fold(at));
  if (step.destination != TUTTI_BUFFER_NONE) TUTTI_TRY(write(at, step.destination_chunk, value));
  if (!sends_value) return {};
  for (uint32_t i = 0; i < step.send_count; ++i) send(at, step.send_begin + i, value, size_class(at.plan, step));
  return {};
}

Status Contents::on_gather(uint32_t rank, uint32_t index) {
  const At at = this->at(rank, index);
  for (uint32_t i = 0; i < at.step.recv_count; ++i) {
    const uint32_t chunk = at.plan.peers[at.step.recv_begin + i].chunk;
    TUTTI_ASSIGN(const Values::Id value, receive(at, at.step.recv_begin + i, chunk % at.plan.chunks));
    TUTTI_TRY(write(at, chunk, value));
  }
  return {};
}

/// What the own source chunk and, unless the step gathers, the received messages make, in ascending order of ranks.
Result<Values::Id> Contents::fold(const At& at) {
  operands_.clear();
  bool own_pending = at.step.source != TUTTI_BUFFER_NONE;
  const auto add_own = [&]() -> Status {
    own_pending = false;
    TUTTI_ASSIGN(const Values::Id own, read(at, at.step.source_chunk));
    operands_.push_back(own);
    return {};
  };
  if (!has(at.step, TUTTI_STEP_GATHER)) {
    for (uint32_t i = at.step.recv_begin; i < at.step.recv_begin + uint32_t{at.step.recv_count}; ++i) {
      if (own_pending && at.rank < at.plan.peers[i].rank) TUTTI_TRY(add_own());
      TUTTI_ASSIGN(const Values::Id value, receive(at, i, size_class(at.plan, at.step)));
      operands_.push_back(value);
    }
  }
  if (own_pending) TUTTI_TRY(add_own());
  const Values::Id value = values_.fold(operands_, at.place());
  return has(at.step, TUTTI_STEP_FINAL) ? values_.finalize(value, at.place()) : value;
}

Result<Values::Id> Contents::read(const At& at, uint32_t chunk) {
  if (at.step.source == TUTTI_BUFFER_OUTPUT) {
    const Cell& cell = outputs_[at.rank][chunk];
    if (cell.value == kNone) return wrong(at.text(), fmt::format("reads output chunk {} before it is written", chunk));
    return cell.value;
  }
  if (only_root_has_input(at.plan.collective) && at.rank != at.plan.root) {
    return wrong(at.text(), fmt::format("reads the input, which only the root, rank {}, has", at.plan.root));
  }
  if (overwritten(at.plan, chunk)) {
    const uint32_t alias = aliased_output(at.plan, chunk);
    return wrong(at.text(), fmt::format("reads input chunk {} after step {} has overwritten it (in place it is output "
                                        "chunk {})",
                                        chunk, outputs_[at.rank][alias].written_by, alias));
  }
  return values_.input(at.rank, chunk);
}

Status Contents::write(const At& at, uint32_t chunk, Values::Id value) {
  if (only_root_has_output(at.plan.collective) && at.rank != at.plan.root) {
    return wrong(at.text(), fmt::format("writes the output, which only the root, rank {}, has", at.plan.root));
  }
  outputs_[at.rank][chunk] = {value, at.index};
  return {};
}

/// Whether an input chunk shares its memory with an output chunk that now holds something else. What a reduction writes
/// always is something else: reading an input may scale it.
bool Contents::overwritten(const Plan& plan, uint32_t input_chunk) const {
  const uint32_t alias = aliased_output(plan, input_chunk);
  if (alias == kNone || outputs_[plan.rank][alias].value == kNone) return false;
  return reduces(plan.collective) ||
         !values_.differs_from_input(outputs_[plan.rank][alias].value, plan.rank, input_chunk).empty();
}

/// The parts of a gather or scatter step have no order among themselves: no chunk may be written twice, or written and
/// read. Copying a chunk onto itself is neither.
Status Contents::check_overlap(const At& at) const {
  const tutti_plan_step& step = at.step;
  std::vector<uint32_t> written;
  std::vector<uint32_t> read;
  const bool copies = step.destination != TUTTI_BUFFER_NONE;
  const bool copies_onto_itself = copies && output_place(at, step.source_chunk) == step.destination_chunk;
  if (copies && !copies_onto_itself) written.push_back(step.destination_chunk);
  if (copies || (step.send_count > 0 && !has(step, TUTTI_STEP_SCATTER))) {
    read.push_back(output_place(at, step.source_chunk));
  }
  if (has(step, TUTTI_STEP_GATHER)) {
    for (const tutti_plan_peer& peer : at.plan.recv(step)) written.push_back(peer.chunk);
  }
  if (has(step, TUTTI_STEP_SCATTER)) {
    for (const tutti_plan_peer& peer : at.plan.send(step)) read.push_back(output_place(at, peer.chunk));
  }
  std::sort(written.begin(), written.end());
  if (const auto twice = std::adjacent_find(written.begin(), written.end()); twice != written.end()) {
    return wrong(at.text(), fmt::format("writes output chunk {} twice", *twice));
  }
  for (uint32_t chunk : read) {
    if (!std::binary_search(written.begin(), written.end(), chunk)) continue;
    return wrong(at.text(), fmt::format("both reads and writes output chunk {}", chunk));
  }
  return {};
}

/// What entry `peer` of the plan's peers sent.
Result<Values::Id> Contents::receive(const At& at, uint32_t peer, uint32_t size_class) {
  const Message message = messages_[connections_.incoming(at.rank, peer)].pop();
  if (message.size_class == size_class) return message.value;
  return wrong(at.text(),
               fmt::format("takes what rank {} sent in its step {} as chunk {} of a block, but it was chunk {}",
                           at.plan.peers[peer].rank, message.step, size_class, message.size_class));
}

void Contents::send(const At& at, uint32_t peer, Values::Id value, uint32_t size_class) {
  messages_[connections_.outgoing(at.rank, peer)].push({value, size_class, at.index});
}

/// The output chunk that shares the memory of an input chunk; kNone out of place and where there is none.
uint32_t Contents::aliased_output(const Plan& plan, uint32_t input_chunk) const {
  if (!in_place_) return kNone;
  const uint32_t own_block = plan.rank * plan.chunks;
  if (plan.input_blocks == plan.output_blocks) return input_chunk;
  if (plan.input_blocks == 1) return own_block + input_chunk;
  return input_chunk - own_block < plan.chunks ? input_chunk - own_block : kNone;
}

/// The output chunk whose memory a source chunk of the step is; kNone if none.
uint32_t Contents::output_place(const At& at, uint32_t source_chunk) const {
  return at.step.source == TUTTI_BUFFER_OUTPUT ? source_chunk : aliased_output(at.plan, source_chunk);
}

Status Contents::check_outputs() const {
  for (const Plan& plan : plans_) {
    if (plan.collective == Collective::kSendRecv) continue;
    if (only_root_has_output(plan.collective) && plan.rank != plan.root) continue;
    for (uint32_t chunk = 0; chunk < plan.output_chunks(); ++chunk) {
      if (const std::string what = wrong_output(plan, chunk); !what.empty()) {
        const uint32_t step = outputs_[plan.rank][chunk].written_by;
        if (step != kNone) failed_at_ = {plan.rank, step};
        return wrong(fmt::format("rank {} output chunk {}", plan.rank, chunk), what);
      }
    }
  }
  return {};
}

/// "" if an output chunk holds what its collective demands.
std::string Contents::wrong_output(const Plan& plan, uint32_t chunk) const {
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
      const Values::Id first = outputs_[0][chunk].value;
      if (values_.expression(value) == values_.expression(first)) return "";
      return "is folded in another order than on rank 0, so that bits may differ";
    }
    default:
      return values_.differs_from_reduction(value, chunk);
  }
}

}  // namespace tutti::plan
