// SPDX-License-Identifier: Apache-2.0
// The measurements of one collective, and the choice of further measurements that are worth their time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tools/check/problem.h"

namespace tutti::tune {

/// A candidate with a number of channels.
struct Run {
  size_t candidate = 0;  ///< in the list of candidates
  uint32_t channels = 1;
  bool operator==(const Run&) const = default;
  bool operator<(const Run& other) const {
    return std::tie(candidate, channels) < std::tie(other.candidate, other.channels);
  }
};

struct Sample {
  Run run;
  double time_us = 0;
};

/// One collective over ascending sizes. The same on every rank, which all see the same times. One thread at a time.
class Series {
 public:
  Series(std::string collective, std::vector<check::Problem> problems);

  const std::string& collective() const { return collective_; }
  const std::vector<check::Problem>& problems() const { return problems_; }

  /// Whether a measurement of `run` at this size may find a faster choice. It comes after the measurements at all
  /// smaller sizes and with fewer channels. Remembers a no.
  bool worth(size_t size, const Run& run);
  void add(size_t size, const Run& run, double time_us);
  /// This run is wrong: nothing more of it.
  void drop(const Run& run) { dropped_.push_back(run); }
  /// The candidate cannot run with so many channels: nothing of it with as many or more.
  void drop_from(const Run& run) { dropped_from_.push_back(run); }
  /// Whether it was dropped, or more channels have become slower at this size.
  bool is_settled(size_t size, const Run& run) const;

  using Counts = std::function<bool(const Run&)>;
  /// All that was measured at a size and counts, fastest first. No function: all count.
  std::vector<Sample> ranked(size_t size, const Counts& counts = {}) const;
  /// The choice at a measured size: among the runs within some per cent of the fastest run, the run with the fewest
  /// channels, since each channel takes an SM from the application. At least one measurement that counts must exist.
  Sample thriftiest(size_t size, const Counts& counts = {}) const;
  /// The size in bytes of the larger buffer up to which the choice at size `from` is better than the choice at the
  /// larger size `to`. Both take equally long there if times grow linearly between the sizes. If one of the choices was
  /// not measured at both sizes, the middle on a logarithmic scale.
  uint64_t border(size_t from, const Run& small, size_t to, const Run& large) const;
  size_t sample_count() const;

 private:
  enum class Verdict { kMeasured, kPaused, kBehind };
  struct Mark {
    Verdict verdict = Verdict::kMeasured;
    double time_us = 0;
  };
  using Marks = std::map<Run, Mark>;

  const Mark* find(size_t size, const Run& run) const;
  std::optional<double> measured_us(size_t size, const Run& run) const;
  double ratio(size_t size, double time_us) const;
  bool has_enough_channels(size_t size, const Run& run) const;
  Verdict judge(size_t size, const Run& run) const;

  std::string collective_;
  std::vector<check::Problem> problems_;
  std::vector<Marks> marks_;  ///< by size
  std::vector<double> best_us_;
  std::vector<Run> dropped_;
  std::vector<Run> dropped_from_;
};

}  // namespace tutti::tune
