// SPDX-License-Identifier: Apache-2.0
// Sets of ranks as intervals: the contributions of a ring, a tree or a range of ranks take one interval or a few.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::program {

/// Sets of ranks below `rank_count`, by number. Equal sets may have different numbers. One thread at a time.
class RankSets {
 public:
  using Id = uint32_t;
  explicit RankSets(uint32_t rank_count) : rank_count_(rank_count) {}

  Id single(uint32_t rank);
  /// The set with `distance` added to each rank, modulo rank_count.
  Id moved(Id set, uint32_t distance);
  /// The union. `twice` is set to the lowest rank that several parts have, if there is any.
  Id united(std::span<const Id> parts, std::optional<uint32_t>& twice);

  bool has(Id set, uint32_t rank) const;
  /// The lowest rank that the set has not; nothing if it has all.
  std::optional<uint32_t> first_lacking(Id set) const;
  /// Intervals of all sets.
  uint64_t size() const { return intervals_.size(); }

 private:
  /// The ranks from `first` up to `end`, without `end`.
  struct Interval {
    uint32_t first;
    uint32_t end;
  };
  std::span<const Interval> of(Id set) const {
    return std::span(intervals_).subspan(begins_[set], begins_[set + 1] - begins_[set]);
  }
  Id close();

  uint32_t rank_count_;
  std::vector<Interval> intervals_;   ///< of all sets; ascending and apart within each set
  std::vector<size_t> begins_ = {0};  ///< by set; one more entry at the end
  std::vector<Interval> merging_;     ///< intervals of the current union
};

}  // namespace tutti::program
