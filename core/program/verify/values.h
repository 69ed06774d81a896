// SPDX-License-Identifier: Apache-2.0
// Symbolic values: which contributions a chunk holds, and by which expression they were folded.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/status.h"

namespace tutti::program {

/// All values of one symbolic run, by number. A value holds, for one input chunk index, the ranks whose chunks it
/// contains. A defect that can never be repaired (a rank twice, different chunks, FINAL too early) is noted in the
/// value. It is reported only if the value ends at a place that demands a right value. One thread at a time.
class Values {
 public:
  using Id = uint32_t;
  /// The step that makes a value. Its text is made only for a defect.
  struct Place {
    uint32_t rank;
    uint32_t step;
    std::string text() const;  ///< "rank 1 step 2"
  };

  explicit Values(uint32_t rank_count) : rank_count_(rank_count), words_((rank_count + 63) / 64) {}

  /// Input chunk `chunk` of `rank`.
  Id input(uint32_t rank, uint32_t chunk);
  /// The fold of at least one value, in the order given.
  Id fold(std::span<const Id> operands, Place where);
  /// The value after the reduction's final operation.
  Id finalize(Id value, Place where);

  /// "": the value is input chunk `chunk` of `rank`; else the content of the value.
  std::string differs_from_input(Id value, uint32_t rank, uint32_t chunk) const;
  /// "": the value is the finished reduction of input chunk `chunk` over all ranks; else the defect.
  std::string differs_from_reduction(Id value, uint32_t chunk) const;
  /// Equal for equal expressions, up to the order of the two operands of a fold of two.
  uint64_t expression(Id value) const { return values_[value].expression; }

 private:
  struct Value {
    uint32_t chunk = 0;
    uint32_t rank = 0;  ///< the contributor of an input value
    uint64_t expression = 0;
    uint32_t members = 0;  ///< index of its bit set in members_; kNone for an input value
    uint32_t defect = 0;   ///< index in defects_; kNone if sound
    bool final = false;
  };
  static constexpr uint32_t kNone = ~0u;

  uint32_t first_lacking(const Value& value) const;
  void merge(const Value& operand, Value& into, Place where);
  uint64_t expression_of(std::span<const Id> operands);
  void note(Value& value, std::string defect);

  uint32_t rank_count_;
  uint32_t words_;
  std::vector<Value> values_;
  std::vector<uint64_t> members_;
  std::vector<std::string> defects_;
  std::vector<uint64_t> expressions_;  ///< expressions of the operands of the current fold
};

}  // namespace tutti::program
