// SPDX-License-Identifier: Apache-2.0
// Builds a plan step by step, as papers describe algorithms. Header only, for plugins.
//
//   sdk::PlanBuilder plan(request, rank_count, chunks);
//   plan.step().own(Buffer::kInput, c).send(next);                                       // send
//   plan.step().recv(prev).own(Buffer::kInput, c).send(next);                            // recvReduceSend
//   plan.step().recv(prev).own(Buffer::kInput, c).final().to_output(c).send(next);       // recvReduceCopySend
//   plan.step().recv(prev).to_output(c).send(next);                                      // recvCopySend
//   return plan;
//
// tutti/plugin/plan.h states the meaning of a step, and the messages that it waits for. The builder checks nothing. The
// host checks every plan, and its error names the step and the field.
#pragma once

#include <algorithm>
#include <vector>

#include "tutti/plugin/algorithm.h"
#include "tutti/sdk/peer_list.h"

namespace tutti::sdk {

enum class Buffer : uint8_t {
  kInput = TUTTI_BUFFER_INPUT,
  kOutput = TUTTI_BUFFER_OUTPUT,
  kScratch = TUTTI_BUFFER_SCRATCH
};

/// The plan of one rank on one channel, under construction. Threads: one thread at a time.
class PlanBuilder {
 public:
  /// A step under construction. The calls may have any order. No copy: its calls would have no effect on the plan.
  class Step {
   public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    Step(Step&&) noexcept = default;
    Step& operator=(Step&&) noexcept = default;
    ~Step() = default;

    /// Adds an own chunk to the fold. Without a recv() it is the whole value.
    Step& own(Buffer buffer, uint32_t chunk) {
      step_.source = static_cast<uint8_t>(buffer);
      step_.source_chunk = chunk;
      return *this;
    }
    /// Adds the message of `rank` to the fold.
    Step& recv(uint32_t rank) { return add(recv_, rank, 0); }
    /// Writes the value to this output chunk.
    Step& to_output(uint32_t chunk) { return to(Buffer::kOutput, chunk); }
    /// Writes the value to this scratch chunk.
    Step& to_scratch(uint32_t chunk) { return to(Buffer::kScratch, chunk); }
    /// Writes the value to this chunk of the output or of the scratch buffer.
    Step& to(Buffer buffer, uint32_t chunk) {
      step_.destination = static_cast<uint8_t>(buffer);
      step_.destination_chunk = chunk;
      return *this;
    }
    /// Sends the value to `rank`.
    Step& send(uint32_t rank) { return add(send_, rank, 0); }
    /// Marks the value as complete: the step applies the final operation of the reduction.
    Step& final() { return flag(TUTTI_STEP_FINAL); }
    /// Writes the message of `rank` to an output chunk, without a fold. Makes this a gather step.
    Step& gather(uint32_t rank, uint32_t chunk) {
      flag(TUTTI_STEP_GATHER);
      return add(recv_, rank, chunk);
    }
    /// Makes a gather step write its messages to the scratch buffer.
    Step& gather_to_scratch() {
      step_.gather_buffer = TUTTI_BUFFER_SCRATCH;
      return *this;
    }
    /// Gives the step `count` chunks, and its messages as many. The chunks that the other calls name are the first of
    /// each list; the next chunk of a list is a stride away.
    Step& chunks(uint32_t count, uint32_t source_stride = 1, uint32_t destination_stride = 1) {
      range_ = count > 1 ? tutti_plan_range{count, source_stride, destination_stride, 0} : tutti_plan_range{1, 0, 0, 0};
      return *this;
    }
    /// Sends this chunk of the buffer that own() names to `rank`. Makes this a scatter step.
    Step& scatter(uint32_t rank, uint32_t chunk) {
      flag(TUTTI_STEP_SCATTER);
      return add(send_, rank, chunk);
    }
    /// In a repeat: adds so much to each number of the step, per round (tutti_plan_growth). A negative number counts
    /// down. The order is: chunk of own(), chunk of to(), ranks and chunks of recv() or gather(), ranks and chunks of
    /// send() or scatter().
    struct Growth {
      int64_t own = 0;
      int64_t to = 0;
      int64_t recv = 0;
      int64_t gather_chunk = 0;
      int64_t send = 0;
      int64_t scatter_chunk = 0;
    };
    Step& grow(const Growth& growth) {
      growth_ = growth;
      return *this;
    }
    /// Makes the step wait until a step of another strand is complete. `step` is that step's number: what step_count()
    /// was before it was added, or will be.
    Step& after(uint32_t step) {
      after_.push_back(step);
      return *this;
    }
    /// Names the chunk that a step forwards, for a step without own() and to_output(). It gives the message its length.
    Step& relay(uint32_t chunk) {
      step_.source_chunk = chunk;
      return *this;
    }

   private:
    friend class PlanBuilder;
    using Peers = std::vector<tutti_plan_peer>;

    Step& flag(uint8_t bit) {
      step_.flags = static_cast<uint8_t>(step_.flags | bit);
      return *this;
    }
    Step& add(Peers& peers, uint32_t rank, uint32_t chunk) {
      peers.push_back({rank, chunk});
      return *this;
    }
    /// A step has no stride for buffers that it does not use.
    tutti_plan_range range() const {
      tutti_plan_range range = range_;
      const bool gathers = (step_.flags & TUTTI_STEP_GATHER) != 0 && !recv_.empty();
      const bool writes = step_.destination != TUTTI_BUFFER_NONE || gathers;
      if (step_.source == TUTTI_BUFFER_NONE && writes) range.source_stride = 0;
      if (!writes) range.destination_stride = 0;
      return range;
    }
    /// Sorts the peers of a step that folds by rank. A gather or scatter step keeps the order of its author.
    void sort_peers() {
      if ((step_.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0) return;
      const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
      std::sort(recv_.begin(), recv_.end(), ascending);
      std::sort(send_.begin(), send_.end(), ascending);
    }

    tutti_plan_step step_ = {};
    tutti_plan_range range_ = {1, 0, 0, 0};
    Growth growth_;
    Peers recv_;
    Peers send_;
    std::vector<uint32_t> after_;
  };

  /// A plan for `request` with `chunks` chunks per block and loop. The collective decides the number of blocks.
  PlanBuilder(const tutti_plan_request& request, uint32_t rank_count, uint32_t chunks = 1) {
    const uint32_t collective = request.collective;
    const bool blocks_in = collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_SCATTER;
    const bool blocks_out = collective == TUTTI_ALL_GATHER || collective == TUTTI_GATHER;
    const bool blocks_both = collective == TUTTI_ALL_TO_ALL;
    const bool rooted = collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE || collective == TUTTI_GATHER ||
                        collective == TUTTI_SCATTER;
    plan_.struct_size = sizeof(plan_);
    plan_.collective = collective;
    plan_.rank_count = rank_count;
    plan_.rank = request.rank;
    plan_.root = rooted ? request.root : 0;
    plan_.channel = request.channel;
    plan_.chunks = chunks;
    plan_.input_blocks = blocks_in || blocks_both ? rank_count : 1;
    plan_.output_blocks = blocks_out || blocks_both ? rank_count : 1;
  }

  /// Gives the rank a scratch buffer of so many chunks.
  PlanBuilder& scratch(uint32_t chunks) {
    plan_.scratch_chunks = chunks;
    return *this;
  }
  /// States the largest number of chunks that a message of any rank has (Step::chunks). All ranks state the same.
  PlanBuilder& message_chunks(uint32_t count) {
    plan_.message_chunks = count;
    return *this;
  }

  /// Begins the next step. The reference is valid until the next call of step().
  Step& step() { return steps_.emplace_back(); }

  /// Makes the steps since `first`, an earlier step_count(), the body of a repeat. Zero rounds remove the steps.
  PlanBuilder& repeat(uint32_t first, uint32_t rounds) {
    const uint32_t end = step_count();
    if (rounds == 0) steps_.resize(first);
    if (rounds > 0 && end > first) repeats_.push_back({first, end - first, rounds, 0});
    return *this;
  }
  /// Begins a strand: the following steps run beside the steps of other strands. The steps before the first call of
  /// strand() are a strand, too. A strand without steps does not count.
  PlanBuilder& strand() {
    const uint32_t begin = step_count();
    if (begin > 0 && (strands_.empty() || strands_.back() != begin)) strands_.push_back(begin);
    return *this;
  }
  /// Number of steps so far; the body of a repeat counts once.
  uint32_t step_count() const { return static_cast<uint32_t>(steps_.size()); }

  /// Passes the plan to the sink, and returns the status of the sink. Errors: TUTTI_UNSUPPORTED if the steps have more
  /// peers than tutti_plan_step can name.
  int32_t emit(const tutti_plan_sink& sink) {
    std::vector<tutti_plan_step> steps;
    std::vector<tutti_plan_peer> peers;
    PeerList list(peers);
    std::vector<tutti_plan_range> ranges;
    std::vector<tutti_plan_growth> growths;
    steps.reserve(steps_.size());
    ranges.reserve(steps_.size());
    growths.reserve(steps_.size());
    for (Step& step : steps_) {
      ranges.push_back(step.range());
      growths.push_back(growth_of(step));
      step.sort_peers();
      tutti_plan_step out = step.step_;
      if (step.recv_.size() > UINT16_MAX || step.send_.size() > UINT16_MAX) return TUTTI_UNSUPPORTED;
      if (!list.place(step.recv_, out.recv_begin)) return TUTTI_UNSUPPORTED;
      if (!list.place(step.send_, out.send_begin)) return TUTTI_UNSUPPORTED;
      out.recv_count = static_cast<uint16_t>(step.recv_.size());
      out.send_count = static_cast<uint16_t>(step.send_.size());
      steps.push_back(out);
    }
    plan_.step_count = static_cast<uint32_t>(steps.size());
    plan_.peer_count = static_cast<uint32_t>(peers.size());
    plan_.steps = steps.data();
    plan_.peers = peers.data();
    plan_.ranges = ranges.data();
    plan_.repeat_count = static_cast<uint32_t>(repeats_.size());
    plan_.repeats = repeats_.data();
    plan_.growths = growths.data();
    const std::vector<tutti_plan_strand> strands = all_strands();
    const std::vector<tutti_plan_wait> waits = all_waits();
    plan_.strand_count = static_cast<uint32_t>(strands.size());
    plan_.wait_count = static_cast<uint32_t>(waits.size());
    plan_.strands = strands.data();
    plan_.waits = waits.data();
    return sink.emit(sink.context, &plan_);
  }

 private:
  std::vector<tutti_plan_strand> all_strands() const {
    std::vector<tutti_plan_strand> strands;
    uint32_t begin = 0;
    const auto close = [&](uint32_t end) {
      if (end > begin) strands.push_back({begin, end - begin});
      begin = end;
    };
    for (const uint32_t first : strands_) close(first);
    if (!strands.empty()) close(step_count());
    return strands;
  }
  std::vector<tutti_plan_wait> all_waits() const {
    std::vector<tutti_plan_wait> waits;
    for (uint32_t step = 0; step < step_count(); ++step) {
      std::vector<uint32_t> after = steps_[step].after_;
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      for (const uint32_t earlier : after) waits.push_back({step, earlier});
    }
    return waits;
  }
  /// A growth below the modulus, as the plan has it.
  static uint32_t below(int64_t growth, uint32_t modulus) {
    const int64_t size = modulus > 0 ? modulus : 1;
    return static_cast<uint32_t>((growth % size + size) % size);
  }
  uint32_t chunks_of(uint8_t buffer) const {
    if (buffer == TUTTI_BUFFER_INPUT) return plan_.input_blocks * plan_.chunks;
    if (buffer == TUTTI_BUFFER_OUTPUT) return plan_.output_blocks * plan_.chunks;
    return buffer == TUTTI_BUFFER_SCRATCH ? plan_.scratch_chunks : plan_.chunks;
  }
  tutti_plan_growth growth_of(const Step& step) const {
    const uint8_t gathers_to = step.step_.gather_buffer != 0 ? step.step_.gather_buffer : TUTTI_BUFFER_OUTPUT;
    return {below(step.growth_.own, chunks_of(step.step_.source)),
            below(step.growth_.to, chunks_of(step.step_.destination)),
            below(step.growth_.recv, plan_.rank_count),
            below(step.growth_.gather_chunk, chunks_of(gathers_to)),
            below(step.growth_.send, plan_.rank_count),
            below(step.growth_.scatter_chunk, chunks_of(step.step_.source))};
  }
  tutti_plan plan_ = {};
  std::vector<Step> steps_;
  std::vector<tutti_plan_repeat> repeats_;
  std::vector<uint32_t> strands_;  // the first step of each strand but the first
};

}  // namespace tutti::sdk
