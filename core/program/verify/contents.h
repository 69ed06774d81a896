// SPDX-License-Identifier: Apache-2.0
// One loop of all ranks' plans over symbolic values.
#pragma once

#include "program/verify/run.h"
#include "program/verify/values.h"

namespace tutti::program {

/// Follows every chunk through one loop. One loop is enough: each covers its own part of the buffers, and where every
/// message of a loop is received, the loops' messages never mix.
///
/// With a rotation, `plans` is the plan of rank 0, and `connections` are those of the rotation. The values are those of
/// rank 0. A message of another rank is the message of rank 0, moved.
class Contents : public Run {
 public:
  Contents(std::span<const Plan> plans, const Connections& connections, bool in_place,
           const std::optional<Rotation>& rotation = {});

  /// Makes the run note what is wrong, and go on. `all` outlives the run.
  void note_in(std::vector<CounterExample>* all) { all_ = all; }

  /// After finish(): whether every output chunk has the value that the collective demands.
  Status check_outputs();

  /// Whether the failure says nothing about the plans. Either the sets of ranks take too much memory, or a proof by
  /// rotation cannot compare the order of the operands of a fold of more than two.
  bool is_undecided() const { return undecided_; }

 protected:
  Status on_send(uint32_t rank, uint32_t step) override;
  Status on_gather(uint32_t rank, uint32_t step) override;

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint64_t kMaxIntervals = uint64_t{1} << 25;  // 256 MiB

  struct Message {
    Values::Id value;
    uint32_t size_class;  ///< chunk index % chunks: chunks of one class have the same length
    uint32_t step;        ///< the sender's
    uint32_t count = 1;   ///< chunks of the message; each is an element of the queue
  };
  /// The messages on their way on one connection, the oldest first.
  class Queue {
   public:
    void push(const Message& message) { messages_.push_back(message); }
    Message pop() {
      const Message oldest = messages_[first_++];
      if (first_ == messages_.size()) {
        messages_.clear();
        first_ = 0;
      }
      return oldest;
    }

   private:
    std::vector<Message> messages_;  // a deque takes half a KiB, and all-to-all has a connection for each pair of ranks
    size_t first_ = 0;
  };
  struct Cell {
    Values::Id value = kNone;
    uint32_t written_by = kNone;  ///< the last step that did
  };
  /// One step at work.
  struct At {
    uint32_t rank;
    uint32_t index;  ///< the number of the step in texts
    const Plan& plan;
    const tutti_plan_step& step;
    tutti_plan_range range;
    Values::StepId step_id() const { return {rank, index}; }
    uint32_t source(uint32_t i) const { return source(step.source_chunk, i); }
    /// Chunk `i` of the list in the source buffer that begins with `first`.
    uint32_t source(uint32_t first, uint32_t i) const {
      return plan.chunk_at(step.source, first, range.source_stride, i);
    }
    uint32_t destination(uint32_t i) const {
      return plan.chunk_at(step.destination, step.destination_chunk, range.destination_stride, i);
    }
    uint32_t gathered(uint32_t first, uint32_t i) const {
      return plan.chunk_at(gather_buffer_of(step), first, range.destination_stride, i);
    }
    std::string text() const { return step_id().text(); }
  };

  /// A chunk that a step reads or writes, as memory.
  struct Access {
    uint32_t place;
    uint32_t buffer;
    uint32_t chunk;
  };

  At at(uint32_t rank, uint32_t index) const {
    const Plan& plan = plans_[rank];
    return {rank, number(rank, index), plan, plan.steps[index], plan.range(plan.steps[index])};
  }
  Result<Values::Id> read(const At& at, uint32_t chunk);
  Status write(const At& at, uint32_t buffer, uint32_t chunk, Values::Id value);
  Access access(const At& at, uint32_t buffer, uint32_t chunk) const;
  Status check_lists(const At& at) const;
  Status send_and_copy(const At& at, uint32_t i);
  Result<Values::Id> receive(const At& at, uint32_t peer, uint32_t size_class);
  void send(const At& at, uint32_t peer, Values::Id value, uint32_t size_class);
  Result<Values::Id> fold(const At& at, uint32_t i);
  bool overwritten(const Plan& plan, uint32_t input_chunk) const;
  uint32_t aliased_output(const Plan& plan, uint32_t input_chunk) const;
  std::string wrong_output(const Plan& plan, uint32_t chunk);
  std::string wrong_expression(uint32_t chunk, Values::Id value);
  Status fault(const At& at, std::string what) const;
  Values::Id unknown(const At& at, uint32_t chunk);

  bool in_place_;
  std::optional<Rotation> rotation_;
  Values values_;
  std::vector<std::vector<Cell>> outputs_;  ///< by rank and output chunk
  std::vector<std::vector<Cell>> scratch_;  ///< by rank and scratch chunk
  std::vector<Queue> messages_;             ///< by connection
  std::vector<Values::Id> operands_;        ///< operands of the current fold
  std::vector<uint32_t> operand_ranks_;     ///< the own rank or the sender of each
  std::vector<CounterExample>* all_ = nullptr;
  bool undecided_ = false;
};

}  // namespace tutti::program
