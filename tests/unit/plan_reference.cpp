// SPDX-License-Identifier: Apache-2.0
#include "unit/plan_reference.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tutti::test {
namespace {

bool gathers(const tutti_plan_step& step) {
  return (step.flags & TUTTI_STEP_GATHER) != 0;
}
bool scatters(const tutti_plan_step& step) {
  return (step.flags & TUTTI_STEP_SCATTER) != 0;
}
bool exchanges(const tutti_plan_step& step) {
  return gathers(step) || scatters(step);
}
bool finishes(const tutti_plan_step& step) {
  return (step.flags & TUTTI_STEP_FINAL) != 0;
}

}  // namespace

Reference::Reference(std::span<const Plan> plans, const Options& options, uint64_t seed)
    : plans_(plans.begin(), plans.end()), options_(options), random_(seed) {
  messages_.resize(plans.size(), std::vector<std::queue<Message>>(plans.size()));
  records_.resize(plans.size(), std::vector<Record>(plans.size()));
  first_number_ = {0};
  for (const Plan& plan : plans_) first_number_.push_back(first_number_.back() + options.loops * plan.steps.size());
  for (const Plan& plan : plans_) {
    buffers_.emplace_back();
    for (uint32_t loop = 0; loop < options.loops; ++loop) buffers_.back().push_back(make_buffers(plan));
    done_.emplace_back(options.loops, std::vector<bool>(plan.steps.size()));
    const auto rank = static_cast<uint32_t>(buffers_.size() - 1);
    if (plan.strands.empty()) strands_.push_back({rank, 0, plan.steps.size(), 0});
    for (const tutti_plan_strand& strand : plan.strands) {
      const size_t first = strand.first_step;
      strands_.push_back({rank, first, first + strand.step_count, first});
    }
  }
}

Number Reference::random_number() {
  Number number;
  number.sum = random_();
  for (float& value : number.bits) {
    const float mantissa = 1.0f + static_cast<float>(random_() % (1u << 23)) / static_cast<float>(1u << 23);
    value = std::ldexp(random_() % 2 == 0 ? mantissa : -mantissa, static_cast<int>(random_() % 12));
  }
  return number;
}

Reference::Buffers Reference::make_buffers(const Plan& plan) {
  const size_t in = plan.input_chunks();
  const size_t out = plan.output_chunks();
  const size_t own = size_t{plan.rank} * plan.chunks;
  Buffers buffers;
  if (!options_.in_place) {
    buffers.output_at = in;
    buffers.memory.resize(in + out);
  } else {
    buffers.memory.resize(std::max(in, out));
    if (in < out) buffers.input_at = own;
    if (out < in) buffers.output_at = own;
  }
  for (size_t i = 0; i < in; ++i) buffers.input.push_back(random_number());
  std::copy(buffers.input.begin(), buffers.input.end(),
            buffers.memory.begin() + static_cast<std::ptrdiff_t>(buffers.input_at));
  buffers.written.resize(out);
  buffers.scratch.resize(plan.scratch_chunks);
  return buffers;
}

void Reference::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

std::string Reference::run() {
  for (const Plan& plan : plans_) {
    for (const tutti_plan_step& step : plan.steps) {
      if (std::string what = malformed(plan, step); !what.empty()) return what;
    }
    if (std::string what = malformed_strands(plan); !what.empty()) return what;
  }
  for (uint32_t rank = 0; rank < plans_.size(); ++rank) {
    if (std::string what = race(rank); !what.empty()) return what;
  }
  std::vector<size_t> order(strands_.size());
  for (size_t strand = 0; strand < order.size(); ++strand) order[strand] = strand;
  for (bool moved = true; moved && failure_.empty();) {
    moved = false;
    std::shuffle(order.begin(), order.end(), random_);
    for (size_t strand : order) moved = (failure_.empty() && step_once(strands_[strand])) || moved;
  }
  if (!failure_.empty()) return failure_;
  for (const Strand& strand : strands_) {
    if (strand.loop < options_.loops) return "deadlock";
  }
  for (const auto& row : messages_) {
    for (const auto& queue : row) {
      if (!queue.empty()) return "a message is left over";
    }
  }
  if (options_.in_parts && parts_wait_for_wholes()) return "deadlock of parts";
  check_outputs();
  return failure_;
}

namespace {

uint64_t size_of(const program::Plan& plan, uint8_t buffer) {
  if (buffer == TUTTI_BUFFER_INPUT) return uint64_t{plan.input_blocks} * plan.chunks;
  if (buffer == TUTTI_BUFFER_SCRATCH) return plan.scratch_chunks;
  return uint64_t{plan.output_blocks} * plan.chunks;
}

uint8_t gathered_in(const tutti_plan_step& step) {
  return step.gather_buffer == 0 ? TUTTI_BUFFER_OUTPUT : step.gather_buffer;
}

}  // namespace

/// Chunks of a step, from the first of each list.
std::vector<uint32_t> Reference::list(const Plan& plan, const tutti_plan_step& step, uint8_t buffer, uint32_t first,
                                      bool writes) const {
  const tutti_plan_range range =
      plan.ranges.empty() ? tutti_plan_range{1, 0, 0, 0} : plan.ranges[static_cast<size_t>(&step - &plan.steps[0])];
  const uint64_t size = buffer == TUTTI_BUFFER_NONE ? plan.chunks : size_of(plan, buffer);
  std::vector<uint32_t> chunks;
  uint64_t chunk = first;
  for (uint32_t i = 0; i < range.count; ++i) {
    chunks.push_back(static_cast<uint32_t>(chunk));
    chunk = (chunk + (writes ? range.destination_stride : range.source_stride)) % size;
  }
  return chunks;
}

/// Lists of several chunks.
std::string Reference::malformed_lists(const Plan& plan, const tutti_plan_step& step) const {
  if (plan.ranges.empty()) return "";
  const tutti_plan_range range = plan.ranges[static_cast<size_t>(&step - &plan.steps[0])];
  const bool source = step.source != TUTTI_BUFFER_NONE;
  const bool destination = step.destination != TUTTI_BUFFER_NONE;
  const bool gathers_any = gathers(step) && step.recv_count > 0;
  const bool relay = !source && !destination && !gathers(step) && step.recv_count > 0;
  if (range.count == 0 || range.count > std::max(1u, plan.message_chunks) || range.reserved != 0) return "count";
  if (range.source_stride != 0 && (range.count == 1 || (!source && !relay))) return "stride";
  if (range.destination_stride != 0 && (range.count == 1 || (!destination && !gathers_any))) return "stride";
  if (range.count == 1) return "";
  if (!source && !destination && !gathers_any && !relay) return "count";
  const auto twice = [](std::vector<uint32_t> chunks) {
    const size_t size = chunks.size();
    return std::set<uint32_t>(chunks.begin(), chunks.end()).size() != size;
  };
  const auto bad = [&](uint8_t buffer, uint32_t first, bool writes, uint32_t stride) {
    return stride >= size_of(plan, buffer) || twice(list(plan, step, buffer, first, writes));
  };
  if (source && bad(step.source, step.source_chunk, false, range.source_stride)) return "list";
  if (destination && bad(step.destination, step.destination_chunk, true, range.destination_stride)) return "list";
  if (gathers_any && bad(gathered_in(step), 0, true, range.destination_stride)) return "list";
  if (!source || !destination) return "";
  const auto from = list(plan, step, step.source, step.source_chunk, false);
  const auto to = list(plan, step, step.destination, step.destination_chunk, true);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] % plan.chunks != to[i] % plan.chunks) return "length";
  }
  return "";
}

std::string Reference::malformed(const Plan& plan, const tutti_plan_step& step) const {
  const uint64_t source_chunks = size_of(plan, step.source);
  const bool source = step.source != TUTTI_BUFFER_NONE;
  const bool destination = step.destination != TUTTI_BUFFER_NONE;
  const bool relay = !source && !destination && !gathers(step) && step.recv_count > 0;
  const bool value = source || (!gathers(step) && step.recv_count > 0);
  if (step.source > 3 || step.destination == 1 || step.destination > 3 || step.flags > 7) return "unknown code";
  if (step.gather_buffer == 1 || step.gather_buffer > 3 || (step.gather_buffer != 0 && !gathers(step))) return "buffer";
  if (step.source_chunk >= (source ? source_chunks : relay ? plan.chunks : 1)) return "source chunk";
  if (step.destination_chunk >= (destination ? size_of(plan, step.destination) : 1)) return "destination chunk";
  if (source && destination && step.source_chunk % plan.chunks != step.destination_chunk % plan.chunks) return "length";
  if (std::string what = malformed_lists(plan, step); !what.empty()) return what;
  if ((destination || step.send_count > 0 || finishes(step) || scatters(step)) && !value) return "no value";
  if (scatters(step) && (!source || (!gathers(step) && step.recv_count > 0))) return "scatter";
  if (finishes(step) && (exchanges(step) || !reducing())) return "final";
  const uint32_t operands = (source ? 1u : 0u) + (gathers(step) ? 0u : step.recv_count);
  if (!reducing() && operands > 1) return "folds";
  const bool ordered = !exchanges(step);
  const uint64_t gathered = size_of(plan, gathered_in(step));
  if (auto what = malformed_peers(plan, plan.recv(step), ordered, gathers(step), gathered); !what.empty()) {
    return what;
  }
  return malformed_peers(plan, plan.send(step), ordered, scatters(step), source_chunks);
}

std::string Reference::malformed_peers(const Plan& plan, std::span<const tutti_plan_peer> peers, bool ordered,
                                       bool chunked, uint64_t chunks) const {
  std::set<uint32_t> seen;
  for (const tutti_plan_peer& peer : peers) {
    if (peer.rank >= plans_.size() || peer.rank == plan.rank) return "peer";
    if (ordered && !seen.empty() && *seen.rbegin() >= peer.rank) return "order";
    if (!seen.insert(peer.rank).second) return "twice";
    if (peer.chunk >= (chunked ? chunks : 1)) return "peer chunk";
  }
  return "";
}

/// Whether the strand could do its next (half) step.
bool Reference::step_once(Strand& state) {
  const uint32_t rank = state.rank;
  const Plan& plan = plans_[rank];
  if (plan.steps.empty()) state.loop = options_.loops;
  if (state.loop == options_.loops) return false;
  const tutti_plan_step& step = plan.steps[state.step];
  for (const tutti_plan_wait& wait : plan.waits) {
    if (wait.step == state.step && !done_[rank][state.loop][wait.after]) return false;
  }
  loop_ = state.loop;
  now_ = number_of(rank, state.loop, state.step);
  if (exchanges(step)) {
    if (!ready(plan, step, !state.second_half, state.second_half)) return false;
    state.second_half ? run_gather(rank, step) : run_sends(rank, step);
    state.second_half = !state.second_half;
  } else {
    if (!ready(plan, step, true, true)) return false;
    run_fold(rank, step);
  }
  if (state.second_half) return true;
  note_waits(state);
  done_[rank][state.loop][state.step] = true;
  if (++state.step == state.end) {
    state.step = state.first;
    ++state.loop;
  }
  return true;
}

size_t Reference::number_of(uint32_t rank, uint32_t loop, size_t step) const {
  return first_number_[rank] + loop * plans_[rank].steps.size() + step;
}

/// The waits of a complete step within its rank.
void Reference::note_waits(const Strand& strand) {
  const auto wait_for = [&](uint32_t loop, size_t step) {
    waits_.push_back({now_, number_of(strand.rank, loop, step), true});
  };
  if (strand.step > strand.first) {
    wait_for(strand.loop, strand.step - 1);
  } else if (strand.loop > 0) {
    wait_for(strand.loop - 1, strand.end - 1);
  }
  for (const tutti_plan_wait& wait : plans_[strand.rank].waits) {
    if (wait.step == strand.step) wait_for(strand.loop, wait.after);
  }
}

/// Messages in many parts: a gather or scatter step sends part k + 1 after it has received its parts k. So a step ends
/// at a level above those of the steps that it waits for, and not below that of a step whose parts it receives. If
/// there are no such levels, steps wait for each other in a circle.
bool Reference::parts_wait_for_wholes() const {
  std::vector<size_t> level(first_number_.back());
  for (bool changed = true; changed;) {
    changed = false;
    for (const Wait& wait : waits_) {
      const size_t least = level[wait.on] + (wait.whole ? 1 : 0);
      if (least > level.size()) return true;
      changed = changed || level[wait.step] < least;
      level[wait.step] = std::max(level[wait.step], least);
    }
  }
  return false;
}

void Reference::send(uint32_t from, uint32_t to, Message message) {
  Record& record = records_[from][to];
  if (record.sent >= options_.slots) waits_.push_back({now_, record.receivers[record.sent - options_.slots], true});
  ++record.sent;
  message.sender = now_;
  messages_[from][to].push(std::move(message));
}

bool Reference::ready(const Plan& plan, const tutti_plan_step& step, bool sends, bool receives) const {
  const auto full = [&](const tutti_plan_peer& peer) {
    return messages_[plan.rank][peer.rank].size() >= options_.slots;
  };
  const auto empty = [&](const tutti_plan_peer& peer) { return messages_[peer.rank][plan.rank].empty(); };
  const auto send = plan.send(step);
  const auto recv = plan.recv(step);
  return !(sends && std::any_of(send.begin(), send.end(), full)) &&
         !(receives && std::any_of(recv.begin(), recv.end(), empty));
}

void Reference::run_fold(uint32_t rank, const tutti_plan_step& step) {
  const Plan& plan = plans_[rank];
  if (step.source == TUTTI_BUFFER_NONE && step.recv_count == 0) return;
  if (step.destination == TUTTI_BUFFER_NONE && step.recv_count == 0 && step.send_count == 0) return;
  const bool by_destination = step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
  const auto from = list(plan, step, step.source, step.source_chunk, false);
  const auto to = list(plan, step, step.destination, step.destination_chunk, true);
  const auto& lengths = by_destination ? to : from;
  if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t k = 0; k < to.size(); ++k) {
        const bool same = place(rank, step.source, from[i]) == place(rank, step.destination, to[k]);
        if (i != k && same) return fail("a list reads and writes a chunk at different places");
      }
    }
  }
  std::vector<Message> messages;
  for (const tutti_plan_peer& peer : plan.recv(step)) {
    messages.push_back(receive(peer.rank, rank, lengths, plan.chunks));
    if (!failure_.empty()) return;
  }
  Message out;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    const std::optional<Number> value = fold_one(rank, step, i, messages, from[i]);
    if (!value) return;
    if (step.destination != TUTTI_BUFFER_NONE) write(rank, step.destination, to[i], *value);
    out.numbers.push_back(*value);
    out.lengths.push_back(lengths[i] % plan.chunks);
  }
  for (const tutti_plan_peer& peer : plan.send(step)) send(rank, peer.rank, out);
}

/// The value of place `index` in the lists of a step.
std::optional<Number> Reference::fold_one(uint32_t rank, const tutti_plan_step& step, uint32_t index,
                                          const std::vector<Message>& messages, uint32_t own_chunk) {
  const Plan& plan = plans_[rank];
  std::vector<std::pair<uint32_t, Number>> by_rank;
  size_t next = 0;
  for (const tutti_plan_peer& peer : plan.recv(step)) by_rank.emplace_back(peer.rank, messages[next++].numbers[index]);
  if (step.source != TUTTI_BUFFER_NONE) {
    const std::optional<Number> own = read(rank, step, own_chunk);
    if (!own) return std::nullopt;
    by_rank.emplace_back(rank, *own);
  }
  std::sort(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Number> operands;
  for (const auto& [from, number] : by_rank) operands.push_back(number);
  const Number value = fold(operands);
  return finishes(step) ? finish(value) : value;
}

/// First half of a gather or scatter step.
void Reference::run_sends(uint32_t rank, const tutti_plan_step& step) {
  const Plan& plan = plans_[rank];
  check_overlap(rank, step);
  for (const tutti_plan_peer& peer : plan.send(step)) {
    Message message;
    const uint32_t first = scatters(step) ? peer.chunk : step.source_chunk;
    for (const uint32_t chunk : list(plan, step, step.source, first, false)) {
      const std::optional<Number> number = read(rank, step, chunk);
      if (!number) return;
      message.numbers.push_back(*number);
      message.lengths.push_back(chunk % plan.chunks);
    }
    send(rank, peer.rank, std::move(message));
  }
  if (step.destination == TUTTI_BUFFER_NONE) return;
  const auto from = list(plan, step, step.source, step.source_chunk, false);
  const auto to = list(plan, step, step.destination, step.destination_chunk, true);
  for (size_t i = 0; i < from.size(); ++i) {
    if (const std::optional<Number> own = read(rank, step, from[i])) write(rank, step.destination, to[i], *own);
  }
}

void Reference::run_gather(uint32_t rank, const tutti_plan_step& step) {
  const Plan& plan = plans_[rank];
  for (const tutti_plan_peer& peer : plan.recv(step)) {
    const auto chunks = list(plan, step, gathered_in(step), peer.chunk, true);
    const Message message = receive(peer.rank, rank, chunks, plan.chunks);
    if (!failure_.empty()) return;
    for (size_t i = 0; i < chunks.size(); ++i) write(rank, gathered_in(step), chunks[i], message.numbers[i]);
  }
}

/// Memory of input and output, then scratch memory.
size_t Reference::place(uint32_t rank, uint8_t buffer, uint32_t chunk) const {
  const Buffers& buffers = buffers_[rank][0];
  if (buffer == TUTTI_BUFFER_SCRATCH) return buffers.memory.size() + chunk;
  return (buffer == TUTTI_BUFFER_INPUT ? buffers.input_at : buffers.output_at) + chunk;
}

/// Memory that a gather or scatter step writes may be touched by no other part of it.
void Reference::check_overlap(uint32_t rank, const tutti_plan_step& step) {
  const Plan& plan = plans_[rank];
  std::multiset<size_t> writes;
  std::multiset<size_t> reads;
  if (step.destination != TUTTI_BUFFER_NONE) {
    const auto from = list(plan, step, step.source, step.source_chunk, false);
    const auto to = list(plan, step, step.destination, step.destination_chunk, true);
    for (size_t i = 0; i < from.size(); ++i) {
      const size_t at = place(rank, step.source, from[i]);
      reads.insert(at);
      if (at != place(rank, step.destination, to[i])) writes.insert(place(rank, step.destination, to[i]));
    }
  }
  for (const tutti_plan_peer& peer : plan.send(step)) {
    const uint32_t first = scatters(step) ? peer.chunk : step.source_chunk;
    for (const uint32_t chunk : list(plan, step, step.source, first, false)) {
      reads.insert(place(rank, step.source, chunk));
    }
  }
  if (gathers(step)) {
    for (const tutti_plan_peer& peer : plan.recv(step)) {
      for (const uint32_t chunk : list(plan, step, gathered_in(step), peer.chunk, true)) {
        writes.insert(place(rank, gathered_in(step), chunk));
      }
    }
  }
  for (size_t at : writes) {
    if (writes.count(at) > 1 || reads.contains(at)) fail("parts of a step overlap");
  }
}

std::optional<Number> Reference::read(uint32_t rank, const tutti_plan_step& step, uint32_t chunk) {
  const Plan& plan = plans_[rank];
  const Buffers& buffers = buffers_[rank][loop_];
  const bool rooted_input = plan.collective == Collective::kBroadcast || plan.collective == Collective::kScatter;
  if (step.source == TUTTI_BUFFER_SCRATCH) {
    if (!buffers.scratch[chunk]) fail("reads unwritten scratch memory");
    return buffers.scratch[chunk];
  }
  if (step.source == TUTTI_BUFFER_INPUT) {
    if (rooted_input && rank != plan.root) return fail("reads an input it does not have"), std::nullopt;
    const Number& number = buffers.memory[buffers.input_at + chunk];
    if (number != buffers.input[chunk]) return fail("reads an overwritten input"), std::nullopt;
    return reducing() ? scaled(number) : number;
  }
  if (!buffers.written[chunk]) return fail("reads an unwritten output"), std::nullopt;
  return buffers.memory[buffers.output_at + chunk];
}

void Reference::write(uint32_t rank, uint8_t buffer, uint32_t chunk, const Number& number) {
  const Plan& plan = plans_[rank];
  Buffers& buffers = buffers_[rank][loop_];
  if (buffer == TUTTI_BUFFER_SCRATCH) {
    buffers.scratch[chunk] = number;
    return;
  }
  const bool rooted_output = plan.collective == Collective::kReduce || plan.collective == Collective::kGather;
  if (rooted_output && rank != plan.root) return fail("writes an output it does not have");
  buffers.memory[buffers.output_at + chunk] = number;
  buffers.written[chunk] = true;
}

Reference::Message Reference::receive(uint32_t from, uint32_t to, const std::vector<uint32_t>& chunks,
                                      uint32_t modulus) {
  Message message = messages_[from][to].front();
  messages_[from][to].pop();
  waits_.push_back({now_, message.sender, false});
  records_[from][to].receivers.push_back(now_);
  bool same = message.lengths.size() == chunks.size();
  for (size_t i = 0; same && i < chunks.size(); ++i) same = message.lengths[i] == chunks[i] % modulus;
  if (!same) fail("a message has other lengths than expected");
  return message;
}

/// Two operands add up in float. More are kept in double and rounded once, as an executor may.
Number Reference::fold(const std::vector<Number>& operands) const {
  if (operands.size() == 1) return operands[0];
  Number result;
  for (const Number& operand : operands) result.sum += operand.sum;
  for (size_t i = 0; i < result.bits.size(); ++i) {
    double sum = 0;
    for (const Number& operand : operands) sum += static_cast<double>(operand.bits[i]);
    result.bits[i] = static_cast<float>(sum);
  }
  return result;
}

/// Differs for every set of sums if applied twice, too early or in parts.
Number Reference::finish(Number number) const {
  number.sum = number.sum * 0x9e3779b97f4a7c15u + 0x1234567u;
  for (float& value : number.bits) value = value / 3.0f;
  return number;
}

Number Reference::scaled(Number number) const {
  number.sum *= 5;
  for (float& value : number.bits) value *= 1.7f;
  return number;
}

void Reference::check_outputs() {
  for (const Plan& plan : plans_) {
    const bool rooted = plan.collective == Collective::kReduce || plan.collective == Collective::kGather;
    if (rooted && plan.rank != plan.root) continue;
    for (uint32_t loop = 0; loop < options_.loops; ++loop) {
      for (uint32_t chunk = 0; chunk < plan.output_chunks(); ++chunk) check_output(plan, loop, chunk);
    }
  }
}

void Reference::check_output(const Plan& plan, uint32_t loop, uint32_t chunk) {
  const Buffers& buffers = buffers_[plan.rank][loop];
  if (!buffers.written[chunk]) return fail("an output is not written");
  const Number& got = buffers.memory[buffers.output_at + chunk];
  const uint32_t block = chunk / plan.chunks;
  const uint32_t rest = chunk % plan.chunks;
  const auto input = [&](uint32_t rank, uint32_t at) { return buffers_[rank][loop].input[at]; };
  if (reducing()) {
    const uint32_t at = plan.collective == Collective::kReduceScatter ? plan.rank * plan.chunks + chunk : chunk;
    Number sum;
    for (uint32_t rank = 0; rank < plans_.size(); ++rank) sum.sum += scaled(input(rank, at)).sum;
    if (got.sum != finish(sum).sum) return fail("an output has a wrong sum");
    const Buffers& first = buffers_[0][loop];
    if (plan.collective == Collective::kAllReduce && got.bits != first.memory[first.output_at + chunk].bits) {
      return fail("ranks differ in bits");
    }
    return;
  }
  Number expected;
  switch (plan.collective) {
    case Collective::kAllToAll:
      expected = input(block, plan.rank * plan.chunks + rest);
      break;
    case Collective::kBroadcast:
      expected = input(plan.root, chunk);
      break;
    case Collective::kScatter:
      expected = input(plan.root, plan.rank * plan.chunks + rest);
      break;
    default:
      expected = input(block, rest);
  }
  if (got != expected) fail("an output holds something else");
}

}  // namespace tutti::test
