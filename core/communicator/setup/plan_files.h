// SPDX-License-Identifier: Apache-2.0
// The plan files that a configuration names: read, compared between ranks, proved, and run as algorithms.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "program/file/file.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// One thread at a time.
class PlanFiles {
 public:
  /// Reads the files that `algorithm` and the rules name. From a folder it reads the files that end with .yaml, .yml or
  /// .json, in the order of their names. kConfig or kNotFound, with the place in the configuration or in the plan file.
  /// A file that other users may change is refused or warned of (plugins.trust).
  static Result<PlanFiles> read(const config::Config& config);

  /// "plans/mine.yaml=5f0c...": name and digest of each file, which must be equal on all ranks.
  std::vector<std::string> identity() const;
  /// Proves the files for `rank_count` ranks, out of place and in place, for two slots. The failure is the verifier's,
  /// with the place in the file. Files for other numbers of ranks, and files beyond the limits of proofs, are passed
  /// over: the former run nothing here, the latter are warned of when they run.
  Status prove(uint32_t rank_count) const;
  /// Adds each file to the algorithms that compete. `warns`: the log warns of each file for another number of ranks.
  void add_to(tuner::Choices& choices, const tutti_topology& topology, bool warns) const;

 private:
  struct File {
    std::string path;  ///< as the configuration names it; in a folder: folder and name
    program::PlanFile content;
  };
  Status add(const std::string& path, const config::Config& config);

  std::vector<File> files_;
};

}  // namespace tutti::communicator
