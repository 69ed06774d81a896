// SPDX-License-Identifier: Apache-2.0
// Runs lowered plans as GPU kernels do (tutti/device/cuda/lines.h and slices.h), but on the CPU and for all ranks
// together. Messages go through numbered slots, senders wait for done signals, and numbers continue from call to call.
// It detects more than a kernel: a slot that is overwritten before it was read, and ranks that wait for each other for
// ever. Receivers signal all numbers up to the last number of a loop. This includes messages that do not exist (empty
// chunks and slices, connections that carry fewer messages than the busiest): a sender that skips them would wait for
// the signal. Elements are bytes, combined by their sum modulo 256.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"
#include "tutti/types.h"

namespace tutti::test {

/// One collective call on all ranks.
struct ProgramCall {
  Collective collective = Collective::kAllReduce;
  std::vector<program::Program> programs;  ///< by rank
  tutti_slot_layout layout{};              ///< that the call is cut for
  tutti_cuda_cut cut;
  uint64_t block_bytes;
  std::vector<std::span<uint8_t>> inputs;  ///< by rank: all blocks
  std::vector<std::span<uint8_t>> outputs;
  bool registered = false;  ///< programs may say that messages go straight to outputs of peers
};

/// The CTAs of one index on all ranks; CTAs of different indices are independent.
class ProgramMachine {
 public:
  struct Options {
    uint32_t rank_count = 1;
    tutti_slot_layout layout{};
    bool slices = false;       ///< as slices.h, else as lines.h
    uint32_t cta = 0;          ///< which part of every block
    uint32_t epoch = 0;        ///< the first sequence number
    bool leaves_gaps = false;  ///< receivers say nothing of messages that are not there
    bool in_turns = true;      ///< ranks advance in turns; otherwise each rank in turn runs as far as possible
  };
  ProgramMachine(const Options& options, std::span<const ProgramCall> calls);

  /// "" if all calls ended, else the failure. To be called once.
  std::string run();

 private:
  using Bytes = std::vector<uint8_t>;
  using Action = std::function<bool()>;  // false: must wait
  struct Slot {
    uint32_t number = 0;
    bool unread = false;
    Bytes data;
  };
  struct Runner {
    size_t call = 0;
    uint32_t wave = 0;  // lines: the loop
    uint32_t step = 0;
    uint32_t part = 0;  // part of a step of slices: 1 is the receives of an exchange
    uint32_t slice = 0;
    bool begun = false;
    std::deque<Action> todo;
    tutti_cuda_track track{};
    std::vector<uint32_t> heard;  ///< by peer: its done signal at the begin of the call
    // Range of the loop and slice.
    uint64_t first = 0;
    uint64_t left = 0;
    uint64_t chunk_bytes = 0;
    uint64_t at = 0;
    uint32_t number = 0;
  };

  void plan_next(uint32_t rank);
  void plan_slice(uint32_t rank);
  bool begin_slice(uint32_t rank, uint32_t loop);
  void begin_call(uint32_t rank);
  void end_call(uint32_t rank);
  void end_wave(uint32_t rank);
  bool has_gaps(uint32_t rank) const;
  void pass_over(uint32_t rank, std::span<const tutti_cuda_peer> from);
  void plan_step(uint32_t rank, const tutti_cuda_step& step);
  void plan_fold(uint32_t rank, const tutti_cuda_step& step);
  void plan_sends(uint32_t rank, const tutti_cuda_step& step);
  void plan_receives(uint32_t rank, const tutti_cuda_step& step);
  void plan_send(uint32_t rank, const tutti_cuda_peer& to, std::shared_ptr<const Bytes> value);
  void tell_done(uint32_t rank, const tutti_cuda_step& step);

  const ProgramCall& call_of(uint32_t rank) const { return calls_[runners_[rank].call]; }
  uint32_t waves_of(uint32_t rank) const { return call_of(rank).cut.loops + program_of(rank).stages - 1u; }
  uint32_t wave_numbers(uint32_t rank) const { return program_of(rank).messages * call_of(rank).cut.slices; }
  bool goes_by_slices(uint32_t rank) const { return options_.slices && program_of(rank).stages > 1; }
  const program::Program& program_of(uint32_t rank) const { return call_of(rank).programs[rank]; }
  uint64_t length(uint32_t rank, uint32_t chunk) const;
  std::span<uint8_t> place(uint32_t rank, uint32_t buffer, uint32_t block, uint32_t chunk, uint64_t bytes) {
    return place(rank, memory(rank, buffer), block, chunk, bytes);
  }
  std::span<uint8_t> place(uint32_t rank, std::span<uint8_t> memory, uint32_t block, uint32_t chunk, uint64_t bytes);
  std::span<uint8_t> memory(uint32_t rank, uint32_t buffer) {
    if (buffer == TUTTI_BUFFER_SCRATCH) return scratch_[rank];
    return buffer == TUTTI_BUFFER_INPUT ? call_of(rank).inputs[rank] : call_of(rank).outputs[rank];
  }
  uint32_t number_of(uint32_t rank, const tutti_cuda_peer& peer) const;
  bool is_filled(uint32_t rank, const tutti_cuda_peer& from);
  bool is_free(uint32_t rank, const tutti_cuda_peer& to) const;
  void send(uint32_t rank, const tutti_cuda_peer& to, const Bytes& data);
  Bytes receive(uint32_t rank, const tutti_cuda_peer& from, uint64_t bytes);
  void put(uint32_t rank, const tutti_cuda_peer& from, std::span<uint8_t> to, const Bytes& data);
  Slot& slot(uint32_t from, uint32_t to, uint32_t number);
  tutti_cuda_mailbox& mailbox(uint32_t at, uint32_t of) { return mailboxes_[at * options_.rank_count + of]; }
  const tutti_cuda_mailbox& mailbox(uint32_t at, uint32_t of) const {
    return mailboxes_[at * options_.rank_count + of];
  }
  void fail(std::string what);
  std::string describe_deadlock() const;

  Options options_;
  std::span<const ProgramCall> calls_;
  std::vector<Runner> runners_;
  std::vector<Bytes> scratch_;  // by rank: the buffer of its call
  std::vector<Slot> slots_;
  std::vector<tutti_cuda_mailbox> mailboxes_;
  std::vector<tutti_cuda_track> tracks_;
  std::string failure_;
};

}  // namespace tutti::test
