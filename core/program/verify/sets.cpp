// SPDX-License-Identifier: Apache-2.0
#include "program/verify/sets.h"

#include <algorithm>

namespace tutti::program {

/// Ends the set that was appended last.
RankSets::Id RankSets::close() {
  begins_.push_back(intervals_.size());
  return static_cast<Id>(begins_.size() - 2);
}

RankSets::Id RankSets::single(uint32_t rank) {
  intervals_.push_back({rank, rank + 1});
  return close();
}

RankSets::Id RankSets::moved(Id set, uint32_t distance) {
  const bool has_all = !first_lacking(set);
  if (distance == 0 || has_all) return set;
  merging_.clear();
  for (const Interval& interval : of(set)) {
    const uint32_t first = (interval.first + distance) % rank_count_;
    const uint32_t end = first + (interval.end - interval.first);
    merging_.push_back({first, std::min(end, rank_count_)});
    if (end > rank_count_) merging_.push_back({0, end - rank_count_});
  }
  std::sort(merging_.begin(), merging_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const Interval& interval : merging_) {
    const bool joins = intervals_.size() > begins_.back() && intervals_.back().end == interval.first;
    joins ? void(intervals_.back().end = interval.end) : intervals_.push_back(interval);
  }
  return close();
}

RankSets::Id RankSets::united(std::span<const Id> parts, std::optional<uint32_t>& twice) {
  merging_.clear();
  for (const Id part : parts) merging_.insert(merging_.end(), of(part).begin(), of(part).end());
  std::sort(merging_.begin(), merging_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const Interval& interval : merging_) {
    const bool joins = intervals_.size() > begins_.back() && intervals_.back().end >= interval.first;
    if (!joins) {
      intervals_.push_back(interval);
      continue;
    }
    Interval& last = intervals_.back();
    if (last.end > interval.first && !twice) twice = interval.first;
    last.end = std::max(last.end, interval.end);
  }
  return close();
}

bool RankSets::has(Id set, uint32_t rank) const {
  const auto intervals = of(set);
  const auto above = std::upper_bound(intervals.begin(), intervals.end(), rank,
                                      [](uint32_t r, const Interval& interval) { return r < interval.first; });
  return above != intervals.begin() && rank < std::prev(above)->end;
}

std::optional<uint32_t> RankSets::first_lacking(Id set) const {
  const auto intervals = of(set);
  const uint32_t lacking = intervals.empty() || intervals[0].first > 0 ? 0 : intervals[0].end;
  return lacking < rank_count_ ? std::optional(lacking) : std::nullopt;
}

}  // namespace tutti::program
