// SPDX-License-Identifier: Apache-2.0
// Runs one channel's program on the host: loops over the data, steps of the program, slices of a chunk. (Kernels read
// the same steps: device/cuda/.)
//
// A Team is the thread that runs the program. It supplies the memory accesses, and two functions for the peers of a
// slice: wait_each() and hand_over(). A Wire is a protocol's slot format:
//
//   slot_bytes(bytes)                       the size in slots of a message with so many bytes of data
//   filled(team, connection, bytes)         whether the next message is there
//   overdue(team, connection)               called when a wait gives up: whether a message is there that filled()
//                                           does not recognise
//   accept(team, work, connection, bytes)   checks the signature of a call's first message
//   move(team, work, operands)              folds the operands, writes the value to output and slots, signs first
//                                           messages. Called for each part of a message, in ascending order of offsets
//   publish(team, work, connection, bytes)  hands a slot over
//
// Waits poll at most work.spins times. Then run() returns TUTTI_AGAIN with its position in work.cursor, and the caller
// decides how to wait. No data of a slice moves before all waits of the slice are over, so a repeated call repeats
// nothing. run() also returns TUTTI_AGAIN when it has filled kSendAtOnce bytes of slots that a network carries. The
// caller then sends them while they are in the cache of the processor.
//
// Threads: one thread runs a work at a time.
#pragma once

#include "tutti/device/connection.h"

namespace tutti::device {

/// The operands of one slice of a fold step. Each source and destination has `elements` elements.
struct Operands {
  const uint8_t* own = nullptr;  ///< own contribution; null if there is none
  uint8_t* output = nullptr;     ///< null if the value is not kept
  tutti_connection* const* recv = nullptr;
  tutti_connection* const* send = nullptr;
  uint32_t recv_count = 0;
  uint32_t send_count = 0;
  uint32_t own_position = 0;  ///< how many received values come before the own one
  uint64_t elements = 0;
  bool scaled = false;  ///< the own contribution is multiplied by work.scalar
  bool final = false;   ///< the value is divided by work.divisor
  bool stable = false;  ///< the memory of the value (its destination or source) does not change until the call ends
  uint64_t offset = 0;  ///< bytes of the message before this part; not 0 only in messages of several chunks
};

template <class Team, class Wire>
class Executor {
 public:
  TUTTI_HD Executor(Team& team, tutti_work& work)
      : team_(team), work_(work), program_(*work.program), at_(work.cursor) {}

  /// TUTTI_OK when this channel's share is done, TUTTI_AGAIN, or a failure with work.fault filled.
  TUTTI_HD int32_t run() {
    const uint64_t range = work_.end - work_.begin;
    const uint64_t loop_elements = work_.chunk_elements * program_.chunks;
    for (; at_.loop * loop_elements < range; ++at_.loop, at_.step = 0) {
      enter_loop(range, loop_elements);
      for (; at_.step < program_.step_count; ++at_.step, at_.slice = 0, at_.peer = 0) {
        if (int32_t outcome = run_step(program_.steps[at_.step]); outcome != TUTTI_OK) return outcome;
      }
    }
    return drain();
  }

 private:
  static constexpr uint64_t kSendAtOnce = 64 << 10;

  /// Chunks of the last loop divide the remaining elements evenly, in multiples of a cache line.
  TUTTI_HD void enter_loop(uint64_t range, uint64_t loop_elements) {
    first_ = work_.begin + at_.loop * loop_elements;
    remaining_ = range - at_.loop * loop_elements;
    chunk_ = work_.chunk_elements;
    if (remaining_ < loop_elements && program_.chunks > 1) {
      const uint64_t line = 64 / work_.element_bytes;
      const uint64_t even = (remaining_ + program_.chunks - 1) / program_.chunks;
      chunk_ = (even + line - 1) / line * line;
    }
  }

  /// A chunk of a buffer: chunk `index` (< program.chunks) of a block.
  struct BlockChunk {
    uint32_t block;
    uint32_t index;
  };

  TUTTI_HD uint64_t chunk_length(uint32_t chunk) const {
    const uint64_t offset = chunk * chunk_;
    if (offset >= remaining_) return 0;
    return remaining_ - offset < chunk_ ? remaining_ - offset : chunk_;
  }

  TUTTI_HD uint64_t byte_offset(BlockChunk chunk, uint64_t element) const {
    return (chunk.block * work_.count + first_ + chunk.index * chunk_ + element) * work_.element_bytes;
  }

  TUTTI_HD const uint8_t* source(uint32_t buffer, BlockChunk chunk, uint64_t element) const {
    if (buffer == TUTTI_BUFFER_NONE) return nullptr;
    if (buffer == TUTTI_BUFFER_SCRATCH) return scratch(chunk, element);
    const void* memory = buffer == TUTTI_BUFFER_INPUT ? work_.input : work_.output;
    return static_cast<const uint8_t*>(memory) + byte_offset(chunk, element);
  }

  TUTTI_HD uint8_t* destination(uint32_t buffer, BlockChunk chunk, uint64_t element) const {
    if (buffer == TUTTI_BUFFER_SCRATCH) return scratch(chunk, element);
    return static_cast<uint8_t*>(work_.output) + byte_offset(chunk, element);
  }

  /// Every scratch chunk has room for a whole chunk.
  TUTTI_HD uint8_t* scratch(BlockChunk chunk, uint64_t element) const {
    return static_cast<uint8_t*>(work_.scratch) +
           (index_of(chunk) * work_.chunk_elements + element) * work_.element_bytes;
  }

  TUTTI_HD uint64_t index_of(BlockChunk chunk) const { return uint64_t{chunk.block} * program_.chunks + chunk.index; }

  TUTTI_HD static BlockChunk source_of(const tutti_program_step& step) {
    return {step.source_block, step.source_chunk};
  }
  TUTTI_HD static BlockChunk destination_of(const tutti_program_step& step) {
    return {step.destination_block, step.destination_chunk};
  }
  TUTTI_HD BlockChunk chunk_of(uint32_t peer) const { return {program_.peers[peer].block, program_.peers[peer].chunk}; }

  TUTTI_HD static bool folds(const tutti_program_step& step) {
    return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0;
  }
  TUTTI_HD static uint32_t gather_buffer(const tutti_program_step& step) {
    return (step.flags & TUTTI_STEP_TO_SCRATCH) != 0 ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT;
  }
  TUTTI_HD bool scales(const tutti_program_step& step) const {
    return work_.reduce_op == TUTTI_PREMUL_SUM && step.source == TUTTI_BUFFER_INPUT;
  }

  /// Elements of the step's longest chunk. All chunks of a fold have the same length.
  TUTTI_HD uint64_t step_length(const tutti_program_step& step, bool fold) const {
    if (!fold) return chunk_length(0);
    const bool by_source = step.source != TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE;
    return chunk_length(by_source ? step.source_chunk : step.destination_chunk);
  }

  /// Elements of the chunk's slice that begins at `element`.
  TUTTI_HD uint64_t slice_length(uint32_t chunk, uint64_t element) const {
    const uint64_t length = chunk_length(chunk);
    if (element >= length) return 0;
    return length - element < work_.slice_elements ? length - element : work_.slice_elements;
  }

  TUTTI_HD int32_t run_step(const tutti_program_step& step) {
    if (program_.ranges != nullptr && program_.ranges[at_.step].count > 1) return run_range(step);
    const bool fold = folds(step);
    const uint64_t length = step_length(step, fold);
    for (uint64_t done = at_.slice * work_.slice_elements; done < length; done += work_.slice_elements) {
      const uint64_t left = length - done;
      const uint64_t elements = left < work_.slice_elements ? left : work_.slice_elements;
      const int32_t outcome = fold ? fold_slice(step, done, elements) : exchange_slice(step, done);
      if (outcome != TUTTI_OK) return outcome;
      ++at_.slice;
      at_.peer = 0;
    }
    return TUTTI_OK;
  }

  /// recv → reduce → copy → send, whichever of them the step has.
  TUTTI_HD int32_t fold_slice(const tutti_program_step& step, uint64_t element, uint64_t elements) {
    Operands operands = fold_operands(step);
    operands.elements = elements;
    operands.own = source(step.source, source_of(step), element);
    if (step.destination != TUTTI_BUFFER_NONE) {
      operands.output = destination(step.destination, destination_of(step), element);
    }
    return transfer(operands);
  }

  /// All but the memory of the own chunks.
  TUTTI_HD Operands fold_operands(const tutti_program_step& step) const {
    Operands operands;
    operands.recv = work_.connections + step.recv_begin;
    operands.send = work_.connections + step.send_begin;
    operands.recv_count = step.recv_count;
    operands.send_count = step.send_count;
    operands.own_position = step.own_position;
    operands.scaled = scales(step);
    operands.final = (step.flags & TUTTI_STEP_FINAL) != 0;
    operands.stable = (step.flags & TUTTI_STEP_STABLE) != 0;
    return operands;
  }

  /// GATHER and SCATTER: the own copy, then sends, then receives, one peer at a time; each by the length of its own
  /// chunk.
  TUTTI_HD int32_t exchange_slice(const tutti_program_step& step, uint64_t element) {
    const uint32_t sends = 1 + step.send_count;
    for (; at_.peer < sends + step.recv_count; ++at_.peer) {
      Operands operands;
      BlockChunk chunk = source_of(step);
      if (at_.peer == 0) {
        if (step.source == TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE) continue;
        operands.own = source(step.source, chunk, element);
        operands.output = destination(step.destination, destination_of(step), element);
        operands.scaled = scales(step);
      } else if (at_.peer < sends) {
        const uint32_t peer = step.send_begin + at_.peer - 1;
        if ((step.flags & TUTTI_STEP_SCATTER) != 0) chunk = chunk_of(peer);
        operands.own = source(step.source, chunk, element);
        operands.send = work_.connections + peer;
        operands.send_count = 1;
        operands.scaled = scales(step);
        operands.stable = (step.flags & TUTTI_STEP_STABLE) != 0;
      } else {
        const uint32_t peer = step.recv_begin + at_.peer - sends;
        chunk = chunk_of(peer);
        operands.output = destination(gather_buffer(step), chunk, element);
        operands.recv = work_.connections + peer;
        operands.recv_count = 1;
      }
      operands.elements = slice_length(chunk.index, element);
      if (operands.elements == 0) continue;
      if (int32_t outcome = transfer(operands); outcome != TUTTI_OK) return outcome;
    }
    return TUTTI_OK;
  }

  /// Waits for all of the operands, moves them, hands the slots on.
  TUTTI_HD int32_t transfer(const Operands& operands) {
    const uint64_t bytes = operands.elements * work_.element_bytes;
    if (const int32_t outcome = wait_for_messages(operands, bytes); outcome != TUTTI_OK) return outcome;
    const int32_t outcome = Wire::move(team_, work_, operands);
    if (outcome != TUTTI_OK) return fail(outcome, operands.recv_count > 0 ? *operands.recv[0] : *operands.send[0]);
    hand_over(operands, bytes);
    return TUTTI_OK;
  }

  /// Waits for free slots and for messages of so many bytes, and checks these.
  TUTTI_HD int32_t wait_for_messages(const Operands& operands, uint64_t bytes) {
    if (unsent_ >= kSendAtOnce) return TUTTI_AGAIN;
    const uint64_t taken = Wire::slot_bytes(bytes);
    for (uint32_t i = 0; i < operands.send_count; ++i) place_message(*operands.send[i], taken);
    for (uint32_t i = 0; i < operands.recv_count; ++i) place_message(*operands.recv[i], taken);
    uint32_t stuck = 0;
    int32_t outcome = team_.wait_each(
        operands.send_count, stuck, [&](uint32_t i) { return slot_free(team_, *operands.send[i]); },
        [](uint32_t) { return false; });
    if (outcome != TUTTI_OK) return fail(outcome, *operands.send[stuck]);
    outcome = team_.wait_each(
        operands.recv_count, stuck, [&](uint32_t i) { return Wire::filled(team_, *operands.recv[i], bytes); },
        [&](uint32_t i) { return Wire::overdue(team_, *operands.recv[i]); });
    if (outcome != TUTTI_OK) return fail(outcome, *operands.recv[stuck]);
    for (uint32_t i = 0; i < operands.recv_count; ++i) {
      tutti_connection& from = *operands.recv[i];
      if (int32_t verdict = Wire::accept(team_, work_, from, bytes); verdict != TUTTI_OK) return fail(verdict, from);
    }
    return TUTTI_OK;
  }

  TUTTI_HD void hand_over(const Operands& operands, uint64_t bytes) {
    team_.hand_over(
        operands.send_count,
        [&](uint32_t i) {
          Wire::publish(team_, work_, *operands.send[i], bytes);
          if ((operands.send[i]->flags & TUTTI_CONNECTION_NETWORK) != 0) unsent_ += bytes;
        },
        operands.recv_count, [&](uint32_t i) { release_slot(team_, *operands.recv[i]); });
  }

  // --- Steps with several chunks. A message has the chunks of its list one after the other; each begins on a line of
  // its own (64 bytes). A slice is a part of a message that begins on a line, so it may have parts of several chunks.

  /// A list of chunks in a buffer.
  struct List {
    uint32_t buffer;
    uint64_t first;  ///< counted through all blocks
    uint32_t stride;
  };
  /// The part of a chunk that a slice has.
  struct Part {
    uint32_t index;     ///< in the list
    uint64_t element;   ///< of the chunk, at which the part begins
    uint64_t elements;  ///< 0: the slice has no more parts
    uint64_t offset;    ///< bytes of the slice before it
  };

  TUTTI_HD List list_of(uint32_t buffer, BlockChunk first, uint32_t stride) const {
    return {buffer, index_of(first), stride};
  }
  TUTTI_HD List source_list(const tutti_program_step& step, const tutti_plan_range& range) const {
    return list_of(step.source, source_of(step), range.source_stride);
  }
  TUTTI_HD List destination_list(const tutti_program_step& step, const tutti_plan_range& range) const {
    return list_of(step.destination, destination_of(step), range.destination_stride);
  }
  TUTTI_HD uint32_t chunks_of(uint32_t buffer) const {
    if (buffer == TUTTI_BUFFER_INPUT) return program_.input_blocks * program_.chunks;
    if (buffer == TUTTI_BUFFER_OUTPUT) return program_.output_blocks * program_.chunks;
    return buffer == TUTTI_BUFFER_SCRATCH ? program_.scratch_chunks : program_.chunks;
  }
  TUTTI_HD BlockChunk chunk_at(const List& list, uint32_t index) const {
    const auto chunk = static_cast<uint32_t>((list.first + uint64_t{index} * list.stride) % chunks_of(list.buffer));
    return {chunk / program_.chunks, chunk % program_.chunks};
  }
  TUTTI_HD uint64_t line_elements() const { return 64 / work_.element_bytes; }

  /// Walks through the parts of one slice of a message, or through those of a copy of the same chunks.
  class Parts {
   public:
    TUTTI_HD Parts(const Executor& executor, const List& list, uint32_t count, uint64_t begin, uint64_t elements)
        : executor_(executor), list_(list), count_(count), begin_(begin), end_(begin + elements) {}

    /// The next part that holds elements.
    TUTTI_HD Part next() {
      for (; index_ < count_; ++index_) {
        const uint64_t length = executor_.chunk_length(executor_.chunk_at(list_, index_).index);
        const uint64_t line = executor_.line_elements();
        const uint64_t start = start_;
        if (start >= end_) break;
        start_ += (length + line - 1) / line * line;
        const uint64_t from = start < begin_ ? begin_ : start;
        const uint64_t to = start + length < end_ ? start + length : end_;
        if (from >= to) continue;
        return {index_++, from - start, to - from, (from - begin_) * executor_.work_.element_bytes};
      }
      return {0, 0, 0, 0};
    }

   private:
    const Executor& executor_;
    const List list_;
    const uint32_t count_;
    const uint64_t begin_;
    const uint64_t end_;
    uint32_t index_ = 0;
    uint64_t start_ = 0;  // of the next chunk in the message
  };

  /// Bytes of the slice of a message, from its first to its last element; 0: the message is over.
  TUTTI_HD uint64_t slice_bytes(const List& list, uint32_t count, uint64_t begin) const {
    Parts parts(*this, list, count, begin, work_.slice_elements);
    uint64_t bytes = 0;
    for (Part part = parts.next(); part.elements > 0; part = parts.next()) {
      bytes = part.offset + part.elements * work_.element_bytes;
    }
    return bytes;
  }

  TUTTI_HD int32_t run_range(const tutti_program_step& step) {
    const tutti_plan_range& range = program_.ranges[at_.step];
    const bool fold = folds(step);
    const uint64_t line = line_elements();
    const uint64_t most = range.count * ((chunk_length(0) + line - 1) / line * line);
    for (uint64_t begin = at_.slice * work_.slice_elements; begin < most; begin += work_.slice_elements) {
      const int32_t outcome = fold ? fold_range(step, range, begin) : exchange_range(step, range, begin);
      if (outcome != TUTTI_OK) return outcome;
      ++at_.slice;
      at_.peer = 0;
    }
    return TUTTI_OK;
  }

  TUTTI_HD int32_t fold_range(const tutti_program_step& step, const tutti_plan_range& range, uint64_t begin) {
    const List from = source_list(step, range);
    const List to = destination_list(step, range);
    const bool keeps = step.destination != TUTTI_BUFFER_NONE;
    const bool by_source = step.source != TUTTI_BUFFER_NONE || !keeps;
    return transfer_parts(fold_operands(step), by_source ? from : to, range.count, begin,
                          [&](Operands& operands, const Part& part) {
                            operands.own = source(from.buffer, chunk_at(from, part.index), part.element);
                            if (keeps) operands.output = destination(to.buffer, chunk_at(to, part.index), part.element);
                          });
  }

  /// GATHER and SCATTER, as exchange_slice.
  TUTTI_HD int32_t exchange_range(const tutti_program_step& step, const tutti_plan_range& range, uint64_t begin) {
    const uint32_t sends = 1 + step.send_count;
    for (; at_.peer < sends + step.recv_count; ++at_.peer) {
      Operands operands;
      List list = source_list(step, range);
      const bool copies = at_.peer == 0;
      const bool receives = at_.peer >= sends;
      if (copies && (step.source == TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE)) continue;
      if (receives) {
        const uint32_t peer = step.recv_begin + at_.peer - sends;
        list = list_of(gather_buffer(step), chunk_of(peer), range.destination_stride);
        operands.recv = work_.connections + peer;
        operands.recv_count = 1;
      } else if (!copies) {
        const uint32_t peer = step.send_begin + at_.peer - 1;
        if ((step.flags & TUTTI_STEP_SCATTER) != 0) list.first = index_of(chunk_of(peer));
        operands.send = work_.connections + peer;
        operands.send_count = 1;
      }
      operands.scaled = !receives && scales(step);
      const List to = destination_list(step, range);
      const int32_t outcome =
          transfer_parts(operands, list, range.count, begin, [&](Operands& part_operands, const Part& part) {
            const BlockChunk chunk = chunk_at(list, part.index);
            if (!receives) part_operands.own = source(list.buffer, chunk, part.element);
            if (receives) part_operands.output = destination(list.buffer, chunk, part.element);
            if (copies) part_operands.output = destination(to.buffer, chunk_at(to, part.index), part.element);
          });
      if (outcome != TUTTI_OK) return outcome;
    }
    return TUTTI_OK;
  }

  /// transfer() of a slice in parts; `set_memory` sets the memory of a part. All messages have the lengths of `list`.
  template <class SetMemory>
  TUTTI_HD int32_t transfer_parts(Operands operands, const List& list, uint32_t count, uint64_t begin,
                                  SetMemory&& set_memory) {
    const uint64_t bytes = slice_bytes(list, count, begin);
    if (bytes == 0) return TUTTI_OK;
    operands.stable = false;
    if (const int32_t outcome = wait_for_messages(operands, bytes); outcome != TUTTI_OK) return outcome;
    Parts parts(*this, list, count, begin, work_.slice_elements);
    for (Part part = parts.next(); part.elements > 0; part = parts.next()) {
      operands.elements = part.elements;
      operands.offset = part.offset;
      set_memory(operands, part);
      const int32_t outcome = Wire::move(team_, work_, operands);
      if (outcome != TUTTI_OK) return fail(outcome, operands.recv_count > 0 ? *operands.recv[0] : *operands.send[0]);
    }
    hand_over(operands, bytes);
    return TUTTI_OK;
  }

  /// The call may not end while peers still read this rank's memory in place of a slot: only stable values lie there.
  TUTTI_HD int32_t drain() {
    if (work_.direct_minimum == 0) return TUTTI_OK;
    for (uint32_t s = 0; s < program_.step_count; ++s) {
      const tutti_program_step& step = program_.steps[s];
      if ((step.flags & TUTTI_STEP_STABLE) == 0) continue;
      for (uint32_t i = 0; i < step.send_count; ++i) {
        tutti_connection& to = *work_.connections[step.send_begin + i];
        const int32_t outcome = team_.wait([&] { return freed(team_, to, to.direct_until); });
        if (outcome != TUTTI_OK) return fail(outcome, to);
      }
    }
    return TUTTI_OK;
  }

  TUTTI_HD int32_t fail(int32_t outcome, const tutti_connection& connection) {
    work_.fault.peer = connection.peer;
    return outcome;
  }

  Team& team_;
  tutti_work& work_;
  const tutti_program& program_;
  tutti_cursor& at_;
  uint64_t first_ = 0;      // first element of this loop within each block
  uint64_t remaining_ = 0;  // elements from there to the end of the channel's range
  uint64_t chunk_ = 0;      // elements of a chunk in this loop
  uint64_t unsent_ = 0;     // bytes of slots that this call of run() has filled, and that a network carries
};

}  // namespace tutti::device
