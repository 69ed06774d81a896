// SPDX-License-Identifier: Apache-2.0
// Builds a plan the way a paper describes an algorithm. Header only, for plugins.
//
//   sdk::PlanBuilder plan(request, rank_count, chunks);
//   plan.step().own(Buffer::kInput, c).send(next);                                       // send
//   plan.step().recv(prev).own(Buffer::kInput, c).send(next);                            // recvReduceSend
//   plan.step().recv(prev).own(Buffer::kInput, c).final().to_output(c).send(next);       // recvReduceCopySend
//   plan.step().recv(prev).to_output(c).send(next);                                      // recvCopySend
//   return plan;
//
// What steps mean and how they wait is said in tutti/plugin/plan.h. Nothing is checked here: the host checks every plan
// that it takes and names step and field of what is wrong.
#pragma once

#include <algorithm>
#include <vector>

#include "tutti/plugin/algorithm.h"

namespace tutti::sdk {

enum class Buffer : uint8_t { kInput = TUTTI_BUFFER_INPUT, kOutput = TUTTI_BUFFER_OUTPUT };

class PlanBuilder {
 public:
  /// One step under construction. Calls may come in any order.
  class Step {
   public:
    /// Takes part with an own chunk: it is folded with what is received, or is the whole value.
    Step& own(Buffer buffer, uint32_t chunk) {
      step_.source = static_cast<uint8_t>(buffer);
      step_.source_chunk = chunk;
      return *this;
    }
    /// Takes part with what `rank` sent.
    Step& recv(uint32_t rank) { return add(recv_, rank, 0); }
    /// Writes the value there.
    Step& to_output(uint32_t chunk) {
      step_.destination = TUTTI_BUFFER_OUTPUT;
      step_.destination_chunk = chunk;
      return *this;
    }
    /// Sends the value to `rank`.
    Step& send(uint32_t rank) { return add(send_, rank, 0); }
    /// The value is complete: the reduction's final operation is due.
    Step& final() { return flag(TUTTI_STEP_FINAL); }
    /// Writes what `rank` sent to an output chunk, folding nothing. Makes this a gather step.
    Step& gather(uint32_t rank, uint32_t chunk) {
      flag(TUTTI_STEP_GATHER);
      return add(recv_, rank, chunk);
    }
    /// Sends a chunk of its own to `rank`, from the buffer named by own(). Makes this a scatter step.
    Step& scatter(uint32_t rank, uint32_t chunk) {
      flag(TUTTI_STEP_SCATTER);
      return add(send_, rank, chunk);
    }
    /// Which chunk a step passes on that has neither an own nor an output chunk to tell.
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
    /// Steps that fold name their peers in ascending order; the others keep the author's.
    void sort_peers() {
      if ((step_.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0) return;
      const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
      std::sort(recv_.begin(), recv_.end(), ascending);
      std::sort(send_.begin(), send_.end(), ascending);
    }

    tutti_plan_step step_ = {};
    Peers recv_;
    Peers send_;
  };

  /// A plan for `request` with `chunks` chunks per block and loop. Blocks are those of the collective.
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

  /// Begins the next step. The reference is valid until the next call of step().
  Step& step() { return steps_.emplace_back(); }

  /// Hands the plan over. Returns the sink's status.
  int32_t emit(const tutti_plan_sink& sink) {
    std::vector<tutti_plan_step> steps;
    std::vector<tutti_plan_peer> peers;
    for (Step& step : steps_) {
      step.sort_peers();
      tutti_plan_step out = step.step_;
      if (!place(step.recv_, peers, out.recv_begin, out.recv_count)) return TUTTI_UNSUPPORTED;
      if (!place(step.send_, peers, out.send_begin, out.send_count)) return TUTTI_UNSUPPORTED;
      steps.push_back(out);
    }
    plan_.step_count = static_cast<uint32_t>(steps.size());
    plan_.peer_count = static_cast<uint32_t>(peers.size());
    plan_.steps = steps.data();
    plan_.peers = peers.data();
    return sink.emit(sink.context, &plan_);
  }

 private:
  /// Stores a range of peers once, however many steps have it. False if it is beyond what a step can name.
  static bool place(const Step::Peers& range, Step::Peers& all, uint16_t& begin, uint16_t& count) {
    const auto same = [](const tutti_plan_peer& a, const tutti_plan_peer& b) {
      return a.rank == b.rank && a.chunk == b.chunk;
    };
    const auto found = std::search(all.begin(), all.end(), range.begin(), range.end(), same);
    if (found - all.begin() > UINT16_MAX || range.size() > UINT16_MAX) return false;
    begin = static_cast<uint16_t>(found - all.begin());
    count = static_cast<uint16_t>(range.size());
    if (found == all.end()) all.insert(all.end(), range.begin(), range.end());
    return true;
  }

  tutti_plan plan_ = {};
  std::vector<Step> steps_;
};

}  // namespace tutti::sdk
