// SPDX-License-Identifier: Apache-2.0
// Measuring every candidate, one communicator after the other, by all ranks together.
#pragma once

#include <chrono>
#include <memory>

#include "tools/bench/measure.h"
#include "tools/tune/candidates.h"
#include "tools/tune/series.h"

namespace tutti::tune {

/// The results of a sweep.
struct Findings {
  std::vector<Series> series;       ///< one per collective
  std::vector<std::string> wrong;   ///< "all_reduce ...: direct/two-shot × ll ×4: 17 wrong"
  std::vector<std::string> failed;  ///< runs that failed, with the reason
  std::string gpu;                  ///< as tuners are told; empty on the host
  size_t runs = 0;                  ///< candidates × channels that had their turn, of `of_runs`
  size_t of_runs = 0;
  bool out_of_time = false;
};

class Sweep {
 public:
  /// `control` is for facts that ranks exchange. All arguments must outlive the sweep.
  Sweep(const Request& request, const std::vector<Candidate>& candidates, Communicator& control, Findings& findings);

  /// Fills the findings. After a failure, they hold the earlier measurements.
  Status run();

 private:
  using Clock = std::chrono::steady_clock;
  using List = std::vector<Series*>;

  Status measure(const Run& run);
  /// The series of which some size is worth it.
  List wanted(const Run& run) const;
  Status attempt(const Run& run, const List& list);
  Status measure_with(bench::Measurement& measurement, const Run& run, const List& list);
  Status measure_series(bench::Measurement& measurement, const Run& run, Series& series);
  Status take(const bench::Row& row, size_t size, const Run& run, Series& series);
  bool fits(const Run& run, const check::Problem& problem) const;
  /// Every rank gets rank 0's answer.
  Result<bool> out_of_time();
  Result<std::unique_ptr<bench::Measurement>> open(const bench::Request& request, const List& list, const Run& run);
  Status learn_gpu(const bench::Measurement& measurement);
  void show(const Run& run) const;
  std::string text(const Run& run) const;

  const Request& request_;
  const std::vector<Candidate>& candidates_;
  Communicator& control_;
  Findings& findings_;
  std::unique_ptr<Communicator> subject_;  ///< on the host: the measured communicator
  Clock::time_point start_ = Clock::now();
};

}  // namespace tutti::tune
