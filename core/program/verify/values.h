// SPDX-License-Identifier: Apache-2.0
// Symbolic values: which contributions a chunk holds, and by which expression they were folded.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/verify/rotation.h"
#include "program/verify/rotor.h"
#include "program/verify/sets.h"
#include "tutti/status.h"

namespace tutti::program {

/// All values of one symbolic run, by number. A value holds, for one input chunk index, the ranks whose chunks it
/// contains. A defect that can never be repaired (a rank twice, different chunks, FINAL too early) is noted in the
/// value. It is reported only if the value ends at a place that demands a right value. One thread at a time.
class Values {
 public:
  using Id = uint32_t;
  /// The step that makes a value. Its text is made only for a defect.
  struct StepId {
    uint32_t rank;
    uint32_t step;
    std::string text() const;  ///< "rank 1 step 2"
  };

  /// With a rotation, the values are those of rank 0, and moved() makes the values of other ranks from them.
  explicit Values(uint32_t rank_count, const std::optional<Rotation>& rotation = {});

  /// Input chunk `chunk` of `rank`, read by a step.
  Id input(uint32_t rank, uint32_t chunk, StepId where);
  /// The fold of at least one value, in the order given. `ranks` are the ranks that decide the order: the own rank or
  /// the sender of each operand.
  Id fold(std::span<const Id> operands, std::span<const uint32_t> ranks, StepId where);
  /// The value after the reduction's final operation.
  Id finalize(Id value, StepId where);
  /// The value that rank `distance` has where rank 0 has `value`. Only with a rotation.
  Id moved(Id value, uint32_t distance);

  /// "": the value is input chunk `chunk` of `rank`; else the content of the value.
  std::string differs_from_input(Id value, uint32_t rank, uint32_t chunk) const;
  /// "": the value is the finished reduction of input chunk `chunk` over all ranks; else the defect.
  std::string differs_from_reduction(Id value, uint32_t chunk) const;
  /// Equal for equal expressions, up to the order of the two operands of a fold of two.
  uint64_t expression(Id value) const { return values_[value].expression; }

  /// Intervals of ranks in all values, the measure of their memory.
  uint64_t size() const { return sets_.size(); }
  /// Whether a fold had more than two operands. With a rotation, expressions of equal values may then differ.
  bool has_wide_folds() const { return has_wide_folds_; }

 private:
  struct Value {
    uint32_t chunk = 0;
    uint32_t rank = 0;  ///< the contributor of an input value
    uint64_t expression = 0;
    RankSets::Id members = 0;
    uint32_t defect = 0;   ///< index in defects_; kNone if sound
    StepId made = {0, 0};  ///< by the last step that read, folded or finished it
    bool final = false;
    bool used = false;  ///< an operand of a later value
  };
  static constexpr uint32_t kNone = ~0u;

  void merge(const Value& operand, Value& into, StepId where);
  uint64_t expression_of(std::span<const Id> operands, std::span<const uint32_t> ranks);
  std::string end_of(uint32_t rank, uint32_t chunk) const;
  void note(Value& value, std::string defect);

  uint32_t rank_count_;
  std::optional<Rotation> rotation_;
  std::optional<Rotor> rotor_;
  RankSets sets_;
  std::vector<Value> values_;
  std::vector<std::string> defects_;
  std::vector<uint64_t> expressions_;  ///< expressions of the operands of the current fold
  std::vector<RankSets::Id> parts_;    ///< sets of the operands of the current fold
  bool has_wide_folds_ = false;
};

}  // namespace tutti::program
