// SPDX-License-Identifier: Apache-2.0
#include "backend/host/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace tutti::backend {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kDirectBytes = 16 << 10;  // slices of a single-copy call from this size on

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}
uint64_t round_up(uint64_t value, uint64_t unit) {
  return ceil_div(value, unit) * unit;
}

/// Ranks that run a call in different ways would misread each other's messages.
uint64_t way_of(const tuner::Decision& decision) {
  const uint64_t way =
      mix(mix(mix(mix(0, decision.algorithm), decision.variant), decision.protocol), decision.channels);
  return mix(way, decision.network);
}

}  // namespace

tutti_signature signature_of(uint64_t digest) {
  return {{static_cast<uint32_t>(digest), static_cast<uint32_t>(digest >> 32)}};
}

void Execution::bind(const Call& call, uint64_t number, const Turn& turn, uint64_t digest, uint8_t* scratch) {
  const tutti_signature signature = signature_of(digest);
  for (size_t i = 0; i < works.size(); ++i) {
    tutti_work& work = works[i];
    work.input = call.input;
    work.output = call.output;
    work.scalar = call.reduction.scalar;
    work.call = number;
    work.signature = signature;
    work.cursor = {};
    if (!scratch_begins.empty()) work.scratch = scratch + scratch_begins[i];
    jobs[i].done = false;
    jobs[i].turn = turn;
  }
}

Result<Execution*> Executions::prepare(const Call& call) {
  return kept_.get(call, static_cast<int>(options_.rank), [&](bool in_place) { return make(call, in_place); });
}

Result<std::unique_ptr<Execution>> Executions::make(const Call& call, bool in_place) {
  auto execution = std::make_unique<Execution>();
  TUTTI_ASSIGN(execution->decision, selector_.choose({call.collective, call.type, call.reduction.op, call.count}));
  TUTTI_ASSIGN(const Program* program,
               programs_.collective(execution->decision, call.collective, static_cast<uint32_t>(call.root), in_place));
  TUTTI_TRY(add_works(*execution, call, *program, execution->decision.protocol));
  execution->shape = CallShape::of(call, way_of(execution->decision));
  return execution;
}

Result<tuner::Decision> Executions::decide_message(const Call& call) {
  Shape shape = Shape::of(call, false);
  shape.root = 0;  // the peer plays no part
  KeptDecision& kept = message_decisions_[mix(shape.kind, shape.count) % message_decisions_.size()];
  if (!kept.decision || kept.shape != shape) {
    TUTTI_ASSIGN(kept.decision, selector_.choose({call.collective, call.type, call.reduction.op, call.count}));
    kept.shape = shape;
  }
  return *kept.decision;
}

Status Executions::append_message(Execution& execution, const Call& call) {
  TUTTI_ASSIGN(execution.decision, decide_message(call));
  TUTTI_ASSIGN(const Program* program,
               programs_.message(execution.decision, static_cast<uint32_t>(call.root), call.receives));
  TUTTI_TRY(add_works(execution, call, *program, execution.decision.protocol));
  execution.shape = CallShape::of(call, way_of(execution.decision));
  return {};
}

/// Channels run side by side, so each has scratch memory of its own.
Status Executions::reserve_scratch(Execution& execution) {
  uint64_t bytes = 0;
  for (const tutti_work& work : execution.works) {
    execution.scratch_begins.push_back(bytes);
    const uint64_t chunk_bytes = work.chunk_elements * work.element_bytes;
    bytes += round_up(work.program->scratch_chunks * chunk_bytes, kLineBytes);
  }
  if (bytes == 0) execution.scratch_begins.clear();
  if (bytes <= scratch_bytes_) return {};
  scratch_.reset();
  scratch_bytes_ = 0;
  scratch_.reset(new (std::nothrow) Line[bytes / kLineBytes]);
  if (scratch_ == nullptr) {
    return {Code::kSystem, fmt::format("the algorithm needs a scratch buffer of {} bytes, which this host does not "
                                       "have; make smaller calls, or choose another algorithm",
                                       bytes)};
  }
  scratch_bytes_ = bytes;
  return {};
}

/// Each channel takes an even share of every block, cut at cache lines. The longest message of a plan takes no more
/// slots than one chunk of a plan whose messages have one chunk.
Status Executions::add_works(Execution& execution, const Call& call, const Program& program, uint32_t protocol_index) {
  const uint64_t bytes = size_of(call.type);
  const uint64_t line = kLineBytes / bytes;
  const uint64_t share = round_up(ceil_div(call.count, program.channels.size()), line);
  const uint64_t slice = program.payload_bytes / kLineBytes * line;
  const auto& protocol = selector_.choices().protocols[protocol_index];
  execution.works.reserve(execution.works.size() + program.channels.size());
  for (size_t i = 0; i < program.channels.size(); ++i) {
    const ChannelProgram& channel = *program.channels[i];
    tutti_work work{};
    work.struct_size = sizeof work;
    work.data_type = static_cast<uint32_t>(call.type);
    work.reduce_op = static_cast<uint32_t>(call.reduction.op);
    work.element_bytes = static_cast<uint32_t>(bytes);
    work.program = &channel.view;
    work.connections = channel.connections.data();
    work.count = call.count;
    work.begin = std::min<uint64_t>(call.count, i * share);
    work.end = std::min<uint64_t>(call.count, work.begin + share);
    work.slice_elements = slice;
    const uint64_t even = round_up(ceil_div(work.end - work.begin, channel.view.chunks), line);
    const uint64_t most = slice * program.chunk_slots / channel.program.message_chunks / line * line;
    work.chunk_elements = std::clamp<uint64_t>(even, line, std::max(line, most));
    work.divisor = call.reduction.op == ReduceOp::kAvg ? options_.rank_count : 0;
    work.check = options_.check_calls ? 1 : 0;
    const bool single_copy = options_.direct_minimum != 0 && call.count * bytes >= options_.direct_minimum;
    work.direct_minimum = single_copy ? kDirectBytes : 0;
    work.fences = options_.fences ? 1 : 0;
    work.abort = options_.abort;
    work.input = call.input;
    work.output = call.output;
    work.scalar = call.reduction.scalar;
    execution.works.push_back(work);
  }
  TUTTI_TRY(reserve_scratch(execution));
  execution.jobs.clear();
  for (tutti_work& work : execution.works)
    execution.jobs.push_back({&work, protocol.ops, protocol.plugin, nullptr, false, {}});
  return {};
}

}  // namespace tutti::backend
