// SPDX-License-Identifier: Apache-2.0
// One loop of all ranks' plans over symbolic values.
#pragma once

#include "plan/run.h"
#include "plan/values.h"

namespace tutti::plan {

/// Follows every chunk through one loop. One loop is enough: each covers its own part of the buffers, and where every
/// message of a loop is received, the loops' messages never mix.
class Contents : public Run {
 public:
  Contents(std::span<const Plan> plans, const Connections& connections, bool in_place);

  /// After finish(): whether every output chunk has the value that the collective demands.
  Status check_outputs() const;

 protected:
  Status on_send(uint32_t rank, uint32_t step) override;
  Status on_gather(uint32_t rank, uint32_t step) override;

 private:
  static constexpr uint32_t kNone = ~0u;

  struct Message {
    Values::Id value;
    uint32_t size_class;  ///< chunk index % chunks: chunks of one class have the same length
    uint32_t step;        ///< the sender's
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
    uint32_t index;
    const Plan& plan;
    const tutti_plan_step& step;
    Values::Place place() const { return {rank, index}; }
    std::string text() const { return place().text(); }
  };

  At at(uint32_t rank, uint32_t index) const { return {rank, index, plans_[rank], plans_[rank].steps[index]}; }
  Result<Values::Id> read(const At& at, uint32_t chunk);
  Status write(const At& at, uint32_t chunk, Values::Id value);
  Status check_overlap(const At& at) const;
  Result<Values::Id> receive(const At& at, uint32_t peer, uint32_t size_class);
  void send(const At& at, uint32_t peer, Values::Id value, uint32_t size_class);
  Result<Values::Id> fold(const At& at);
  bool overwritten(const Plan& plan, uint32_t input_chunk) const;
  uint32_t aliased_output(const Plan& plan, uint32_t input_chunk) const;
  uint32_t output_place(const At& at, uint32_t source_chunk) const;
  std::string wrong_output(const Plan& plan, uint32_t chunk) const;

  bool in_place_;
  Values values_;
  std::vector<std::vector<Cell>> outputs_;  ///< by rank and output chunk
  std::vector<Queue> messages_;             ///< by connection
  std::vector<Values::Id> operands_;        ///< operands of the current fold
};

}  // namespace tutti::plan
