// SPDX-License-Identifier: Apache-2.0
#include "unit/program_machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::test {
namespace {

bool exchanges(const tutti_cuda_step& step) {
  return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0;
}

/// Numbers go round: how far `a` is ahead of `b`.
int32_t ahead(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b);
}

}  // namespace

ProgramMachine::ProgramMachine(const Options& options, std::span<const ProgramCall> calls)
    : options_(options), calls_(calls), runners_(options.rank_count), scratch_(options.rank_count) {
  const size_t pairs = size_t{options.rank_count} * options.rank_count;
  slots_.resize(pairs * options.layout.slot_count);
  tutti_cuda_mailbox mailbox{};
  mailbox.tail = mailbox.done = options.epoch;
  mailboxes_.assign(pairs, mailbox);
  tracks_.assign(options.rank_count, {options.epoch, options.epoch});
}

std::string ProgramMachine::run() {
  for (bool moved = true; moved && failure_.empty();) {
    moved = false;
    for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
      Runner& runner = runners_[rank];
      while (failure_.empty()) {
        const auto before = std::pair(runner.call, runner.begun);
        if (runner.todo.empty()) plan_next(rank);
        moved = moved || std::pair(runner.call, runner.begun) != before;  // peers may wait for either end of a call
        if (runner.todo.empty() || !runner.todo.front()()) break;
        runner.todo.pop_front();
        moved = true;
        if (options_.in_turns) break;
      }
    }
  }
  if (!failure_.empty()) return failure_;
  const auto ended = [&](const Runner& runner) { return runner.call == calls_.size(); };
  if (!std::all_of(runners_.begin(), runners_.end(), ended)) return describe_deadlock();
  if (std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.unread; })) {
    return "a message is left over";
  }
  return {};
}

std::string ProgramMachine::describe_deadlock() const {
  std::string text = "deadlock:";
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    const Runner& runner = runners_[rank];
    if (runner.call == calls_.size()) continue;
    text += fmt::format(" rank {} in call {} wave {} before step {} slice {}, number {} of call's {};", rank,
                        runner.call, runner.wave, runner.step, runner.slice, runner.number, runner.track.epoch);
    for (uint32_t peer = 0; peer < options_.rank_count; ++peer) {
      text += fmt::format(" {}: tail {} done {};", peer, mailbox(rank, peer).tail, mailbox(rank, peer).done);
    }
  }
  return text;
}

void ProgramMachine::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

// --- The order of things
// ---------------------------------------------------------------------------------------------

/// Finds the next move of a rank. Nothing: the rank has ended.
void ProgramMachine::plan_next(uint32_t rank) {
  Runner& runner = runners_[rank];
  while (runner.todo.empty() && runner.call < calls_.size()) {
    if (!runner.begun) begin_call(rank);
    if (runner.wave == waves_of(rank)) {
      end_call(rank);
    } else if (runner.step == program_of(rank).step_count) {
      end_wave(rank);
    } else {
      plan_slice(rank);
    }
  }
}

/// Plans the next slice of a step, or of its part, and advances. If loops overlap, the same slice of the next part or
/// step follows, else the next slice of the step.
void ProgramMachine::plan_slice(uint32_t rank) {
  Runner& runner = runners_[rank];
  const tutti_cuda_step& step = program_of(rank).steps[runner.step];
  const uint32_t slices = options_.slices ? call_of(rank).cut.slices : 1;
  const uint32_t parts = options_.slices && exchanges(step) ? 2 : 1;
  if (!options_.slices) {
    begin_slice(rank, runner.wave);
    plan_step(rank, step);
  } else if (begin_slice(rank, runner.wave - (runner.part == 0 ? step.stage : step.recv_stage))) {
    if (parts == 1) plan_fold(rank, step);
    if (parts == 2 && runner.part == 0) plan_sends(rank, step);
    if (parts == 2 && runner.part == 1) plan_receives(rank, step);
  }
  if (!goes_by_slices(rank)) {
    if (++runner.slice < slices) return;
    runner.slice = 0;
  }
  if (++runner.part < parts) return;
  runner.part = 0;
  if (++runner.step < program_of(rank).step_count || !goes_by_slices(rank)) return;
  if (++runner.slice < slices) {
    runner.step = 0;
  } else {
    runner.slice = 0;
  }
}

void ProgramMachine::begin_call(uint32_t rank) {
  Runner& runner = runners_[rank];
  runner.begun = true;
  runner.track = tracks_[rank];
  scratch_[rank].assign(program_of(rank).scratch_blocks * call_of(rank).block_bytes, 0xc5);
  runner.heard.clear();
  for (uint32_t peer = 0; peer < options_.rank_count; ++peer) runner.heard.push_back(mailbox(rank, peer).done);
}

/// ProgramTrack::advance of tutti/device/cuda/tracks.h.
void ProgramMachine::end_call(uint32_t rank) {
  Runner& runner = runners_[rank];
  const uint32_t epoch = runner.track.epoch + call_of(rank).cut.messages;
  const uint32_t half = options_.layout.slot_count / 2;
  int32_t most_behind = 0;
  for (uint32_t peer = 0; peer < options_.rank_count; ++peer) {
    if (peer == rank) continue;
    most_behind = std::max(most_behind, ahead(epoch, runner.heard[peer]));
    if ((epoch & ~(half - 1)) != (runner.track.epoch & ~(half - 1))) mailbox(peer, rank).done = epoch;
  }
  tracks_[rank] = {epoch, epoch - static_cast<uint32_t>(most_behind) + options_.layout.slot_count};
  runner.begun = false;
  runner.wave = runner.step = runner.slice = 0;
  ++runner.call;
}

/// Signals the numbers that a connection has not used in a wave, since no message signals them: otherwise a sender
/// might wait for ever.
void ProgramMachine::end_wave(uint32_t rank) {
  Runner& runner = runners_[rank];
  const program::Program& program = program_of(rank);
  const uint32_t messages = wave_numbers(rank);
  const uint32_t begin = runner.track.epoch + runner.wave * messages;
  const uint32_t wave = runner.wave++;
  runner.step = 0;
  if (options_.leaves_gaps) return;
  const uint32_t half = options_.layout.slot_count / 2;
  if (!options_.slices && call_of(rank).cut.messages <= half) return;
  if (!options_.slices && ((begin + messages) & ~(half - 1)) == (begin & ~(half - 1))) return;
  if (options_.slices) {
    const bool whole = wave + 1u >= program.stages && wave < call_of(rank).cut.loops;
    if (wave + 1 == waves_of(rank) || (whole && !has_gaps(rank))) return;
  }
  runner.todo.push_back([this, rank, end = begin + messages - program.lag * messages] {
    for (uint32_t peer = 0; peer < options_.rank_count; ++peer) mailbox(peer, rank).done = end;
    return true;
  });
}

/// Whether any peer sends fewer messages in a loop than the busiest connection carries.
bool ProgramMachine::has_gaps(uint32_t rank) const {
  const program::Program& program = program_of(rank);
  std::vector<uint32_t> received(options_.rank_count);
  for (const tutti_cuda_step& step : std::span(program.steps, program.step_count)) {
    for (const auto& from : std::span(program.peers + step.recv_begin, step.recv_count)) ++received[from.rank];
  }
  return std::any_of(received.begin(), received.end(),
                     [&](uint32_t count) { return count > 0 && count < program.messages; });
}

/// Slices that are not there are done with as soon as it is their turn.
void ProgramMachine::pass_over(uint32_t rank, std::span<const tutti_cuda_peer> from) {
  if (!options_.slices || options_.leaves_gaps) return;
  runners_[rank].todo.push_back([this, rank, from] {
    for (const tutti_cuda_peer& peer : from) mailbox(peer.rank, rank).done = number_of(rank, peer) + 1;
    return true;
  });
}

/// Returns whether the loop exists.
bool ProgramMachine::begin_slice(uint32_t rank, uint32_t loop) {
  Runner& runner = runners_[rank];
  const ProgramCall& call = call_of(rank);
  if (loop >= call.cut.loops) return false;
  const uint64_t begin = call.cut.part * options_.cta;
  const uint64_t rest = begin < call.block_bytes ? call.block_bytes - begin : 0;
  const uint64_t part = std::min(rest, call.cut.part);
  const uint64_t done = uint64_t{loop} * program_of(rank).chunks * call.cut.chunk;
  runner.first = begin + done;
  runner.left = part > done ? part - done : 0;
  runner.chunk_bytes = loop + 1 < call.cut.loops ? call.cut.chunk : call.cut.last_chunk;
  runner.at = options_.slices ? runner.slice * call.cut.slice : 0;
  const uint32_t step_of_slices = goes_by_slices(rank) ? program_of(rank).messages : 1;
  runner.number = runner.track.epoch + runner.wave * wave_numbers(rank) + runner.slice * step_of_slices;
  return true;
}

// --- Steps
// -----------------------------------------------------------------------------------------------------------

/// Of lines.h.
void ProgramMachine::plan_step(uint32_t rank, const tutti_cuda_step& step) {
  if (exchanges(step)) {
    plan_sends(rank, step);
    plan_receives(rank, step);
  } else {
    plan_fold(rank, step);
  }
  if (call_of(rank).cut.messages > options_.layout.slot_count / 2) tell_done(rank, step);
}

void ProgramMachine::plan_fold(uint32_t rank, const tutti_cuda_step& step) {
  const bool keeps = step.destination != TUTTI_BUFFER_NONE;
  const bool by_destination = step.source == TUTTI_BUFFER_NONE && keeps;
  const uint64_t bytes = length(rank, by_destination ? step.destination_chunk : step.source_chunk);
  const tutti_cuda_peer* const peers = program_of(rank).peers;
  const std::span recv(peers + step.recv_begin, step.recv_count);
  if (bytes == 0) return pass_over(rank, recv);
  const auto value = std::make_shared<Bytes>(bytes);
  const std::span to(peers + step.send_begin, step.send_count);
  runners_[rank].todo.push_back([this, rank, step, keeps, bytes, value, recv, to] {
    if (!std::all_of(recv.begin(), recv.end(), [&](const auto& peer) { return is_filled(rank, peer); })) return false;
    // Slices are moved at once.
    const auto has_room = [&](const auto& peer) { return is_free(rank, peer); };
    if (options_.slices && !std::all_of(to.begin(), to.end(), has_room)) return false;
    const auto add = [&](std::span<const uint8_t> operand) {
      for (size_t i = 0; i < operand.size(); ++i) (*value)[i] = static_cast<uint8_t>((*value)[i] + operand[i]);
    };
    for (const tutti_cuda_peer& peer : recv) add(receive(rank, peer, bytes));
    if (step.source != TUTTI_BUFFER_NONE) add(place(rank, step.source, step.source_block, step.source_chunk, bytes));
    if (keeps) {
      std::span<uint8_t> out = place(rank, step.destination, step.destination_block, step.destination_chunk, bytes);
      put(rank, recv.size() == 1 ? recv[0] : tutti_cuda_peer{}, out, *value);
    }
    return true;
  });
  for (const tutti_cuda_peer& peer : to) plan_send(rank, peer, value);
}

void ProgramMachine::plan_send(uint32_t rank, const tutti_cuda_peer& to, std::shared_ptr<const Bytes> value) {
  runners_[rank].todo.push_back([this, rank, &to, value = std::move(value)] {
    if (!is_free(rank, to)) return false;
    send(rank, to, *value);
    return true;
  });
}

void ProgramMachine::plan_sends(uint32_t rank, const tutti_cuda_step& step) {
  const tutti_cuda_peer* const peers = program_of(rank).peers;
  const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
  std::deque<Action>& todo = runners_[rank].todo;
  for (const tutti_cuda_peer& to : std::span(peers + step.send_begin, step.send_count)) {
    const uint32_t block = scatters ? to.block : step.source_block;
    const uint32_t chunk = scatters ? to.chunk : step.source_chunk;
    if (length(rank, chunk) == 0) continue;
    todo.push_back([this, rank, source = step.source, block, chunk, &to] {
      if (!is_free(rank, to)) return false;
      const auto from = place(rank, source, block, chunk, length(rank, chunk));
      send(rank, to, {from.begin(), from.end()});
      return true;
    });
  }
  if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
    todo.push_back([this, rank, step] {
      const uint64_t bytes = length(rank, step.source_chunk);
      if (bytes == 0) return true;
      const auto from = place(rank, step.source, step.source_block, step.source_chunk, bytes);
      const auto to = place(rank, step.destination, step.destination_block, step.destination_chunk, bytes);
      if (from.data() != to.data()) std::copy_n(from.begin(), std::min(from.size(), to.size()), to.begin());
      return true;
    });
  }
}

void ProgramMachine::plan_receives(uint32_t rank, const tutti_cuda_step& step) {
  const tutti_cuda_peer* const peers = program_of(rank).peers;
  std::deque<Action>& todo = runners_[rank].todo;
  for (const tutti_cuda_peer& from : std::span(peers + step.recv_begin, step.recv_count)) {
    const uint64_t bytes = length(rank, from.chunk);
    if (bytes == 0) {
      pass_over(rank, {&from, 1});
      continue;
    }
    const bool to_scratch = (step.flags & TUTTI_CUDA_STEP_TO_SCRATCH) != 0;
    todo.push_back([this, rank, bytes, to_scratch, &from] {
      if (!is_filled(rank, from)) return false;
      const auto to =
          place(rank, to_scratch ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT, from.block, from.chunk, bytes);
      put(rank, from, to, receive(rank, from, bytes));
      return true;
    });
  }
}

/// As in lines.h: for a call that has more messages than slots.
void ProgramMachine::tell_done(uint32_t rank, const tutti_cuda_step& step) {
  const tutti_cuda_peer* const peers = program_of(rank).peers;
  runners_[rank].todo.push_back([this, rank, from = std::span(peers + step.recv_begin, step.recv_count)] {
    for (const tutti_cuda_peer& peer : from) {
      const uint32_t done = number_of(rank, peer) + 1;
      if ((done & (options_.layout.slot_count / 2 - 1)) == 0) mailbox(peer.rank, rank).done = done;
    }
    return true;
  });
}

// --- Places, messages
// ------------------------------------------------------------------------------------------------

uint64_t ProgramMachine::length(uint32_t rank, uint32_t chunk) const {
  const Runner& runner = runners_[rank];
  const uint64_t offset = chunk * runner.chunk_bytes;
  const uint64_t whole = offset >= runner.left ? 0 : std::min(runner.left - offset, runner.chunk_bytes);
  if (!options_.slices) return whole;
  return runner.at >= whole ? 0 : std::min(whole - runner.at, call_of(rank).cut.slice);
}

std::span<uint8_t> ProgramMachine::place(uint32_t rank, std::span<uint8_t> memory, uint32_t block, uint32_t chunk,
                                         uint64_t bytes) {
  const Runner& runner = runners_[rank];
  const ProgramCall& call = call_of(rank);
  const uint64_t in_block = runner.first + chunk * runner.chunk_bytes + runner.at;
  const uint64_t offset = block * call.block_bytes + in_block;
  if (in_block + bytes <= call.block_bytes && offset + bytes <= memory.size()) return memory.subspan(offset, bytes);
  fail(fmt::format("rank {} touches {} bytes at {} of block {}, outside of the buffer", rank, bytes, in_block, block));
  return {};
}

/// Lines have no slices: a chunk is one slice.
uint32_t ProgramMachine::number_of(uint32_t rank, const tutti_cuda_peer& peer) const {
  const uint32_t step_of_messages = goes_by_slices(rank) ? 1 : call_of(rank).cut.slices;
  return runners_[rank].number + peer.message * step_of_messages - peer.lag * wave_numbers(rank);
}

ProgramMachine::Slot& ProgramMachine::slot(uint32_t from, uint32_t to, uint32_t number) {
  const size_t pair = size_t{from} * options_.rank_count + to;
  return slots_[pair * options_.layout.slot_count + (number & (options_.layout.slot_count - 1))];
}

bool ProgramMachine::is_filled(uint32_t rank, const tutti_cuda_peer& from) {
  const uint32_t number = number_of(rank, from);
  if (options_.slices) return ahead(mailbox(rank, from.rank).tail, number) > 0;
  const Slot& in = slot(from.rank, rank, number);
  return in.unread && in.number == number;
}

bool ProgramMachine::is_free(uint32_t rank, const tutti_cuda_peer& to) const {
  const tutti_cuda_track& track = runners_[rank].track;
  const uint32_t number = number_of(rank, to);
  const Runner& receiver = runners_[to.rank];
  if (to.to_output != 0 && (!receiver.begun || receiver.call != runners_[rank].call)) return false;
  const uint32_t room = static_cast<uint32_t>(std::max(0, ahead(track.safe, track.epoch)));
  if (number - track.epoch < room) return true;
  return ahead(number, mailbox(rank, to.rank).done) < static_cast<int32_t>(options_.layout.slot_count);
}

void ProgramMachine::send(uint32_t rank, const tutti_cuda_peer& to, const Bytes& data) {
  const uint32_t number = number_of(rank, to);
  Slot& out = slot(rank, to.rank, number);
  if (out.unread) fail(fmt::format("rank {} overwrites what rank {} has not read", rank, to.rank));
  if (data.size() > options_.layout.slot_bytes) fail(fmt::format("a message of {} bytes", data.size()));
  const uint32_t call_begin = runners_[rank].track.epoch;
  if (number - call_begin >= call_of(rank).cut.messages) fail(fmt::format("rank {}: a number of the next call", rank));
  out = {number, true, data};
  if (to.to_output != 0) {
    const auto there = place(rank, call_of(rank).outputs[to.rank], to.output_block, to.output_chunk, data.size());
    std::copy_n(data.begin(), there.size(), there.begin());
  }
  mailbox(to.rank, rank).tail = number + 1;
}

/// The received data lies at its destination already, or is copied there.
void ProgramMachine::put(uint32_t rank, const tutti_cuda_peer& from, std::span<uint8_t> to, const Bytes& data) {
  if (from.to_output == 0) {
    std::copy_n(data.begin(), to.size(), to.begin());
  } else if (!std::equal(to.begin(), to.end(), data.begin(), data.end())) {
    fail(fmt::format("rank {} does not find in its output what rank {} has stored there", rank, from.rank));
  }
}

ProgramMachine::Bytes ProgramMachine::receive(uint32_t rank, const tutti_cuda_peer& from, uint64_t bytes) {
  const uint32_t number = number_of(rank, from);
  Slot& in = slot(from.rank, rank, number);
  if (!in.unread || in.number != number || in.data.size() != bytes) {
    fail(fmt::format("rank {} expects message {} of {} bytes from rank {}, finds message {} of {}{}", rank, number,
                     bytes, from.rank, in.number, in.data.size(), in.unread ? "" : ", read before"));
    return Bytes(bytes);
  }
  in.unread = false;
  if (options_.slices) mailbox(from.rank, rank).done = number + 1;
  return in.data;
}

}  // namespace tutti::test
