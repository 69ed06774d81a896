// SPDX-License-Identifier: Apache-2.0
// The command line of `tutti tune` as data.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/request.h"

namespace CLI {
class App;
}

namespace tutti::tune {

struct Request {
  bench::Request bench;                  ///< ranks, sizes and timing
  std::vector<std::string> collectives;  ///< each is measured with the sizes of `bench`
  std::vector<uint32_t> channels;        ///< ascending
  std::string out;                       ///< a file; empty: standard output
  bool figures = false;                  ///< measures the network's hardware figures instead of candidates
  double limit_s = 0;                    ///< after it nothing new is measured; 0: no limit
  std::string command;                   ///< "tutti tune --ranks 8 ...", for the table

  /// Every call to measure of one collective, by size.
  std::vector<check::Problem> problems(const std::string& collective) const;
};

/// Declares the options of `command`; `finish` completes the request after parsing. It throws CLI::ValidationError when
/// options contradict each other.
class RequestOptions {
 public:
  explicit RequestOptions(CLI::App& command);
  Request finish() const;

 private:
  void add_work_options(CLI::App& command);
  void add_run_options(CLI::App& command);

  Request request_;
  std::string device_;
  std::string type_ = "float32";
};

}  // namespace tutti::tune
