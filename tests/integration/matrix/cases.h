// SPDX-License-Identifier: Apache-2.0
// The correctness matrix: which calls are made over which settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/check/problem.h"

namespace tutti::matrix {

/// The connections between ranks: all on one host, each on its own, or several hosts with several ranks each; or GPUs
/// of one host, eager or by replays of a graph.
enum class Reach { kOneHost, kOwnHosts, kHosts, kGpus, kGraphs };
inline bool on_gpus(Reach reach) {
  return reach == Reach::kGpus || reach == Reach::kGraphs;
}

/// The forced choices of a communicator.
struct Setting {
  std::string algorithm;  ///< "ring", "direct/two-shot"
  std::string protocol;
  Reach reach;
  bool registered = false;  ///< on GPUs: all buffers lie in registered buffers
  int host_count = 2;       ///< of kHosts
  bool operator==(const Setting&) const = default;
};
Options options(const Setting& setting, int rank, int rank_count);
/// "ring/ll/one host".
std::string to_string(const Setting& setting);

/// Whether the setting's algorithm and protocol are known to do a collective. The test checks that they do.
bool offers(const Setting& setting, Collective collective, int rank_count);

/// One call, of all ranks.
struct Case {
  check::Problem problem;
  bool in_place;
  Setting setting;
};
std::string to_string(const Case& one);

/// The selected part of the matrix.
struct Selection {
  bool full = false;             ///< every combination; else a set in which every pair of values occurs that can
  uint64_t seed = 1;             ///< seed of inputs, and of the choice of pairs
  std::vector<int> rank_counts;  ///< empty: 1, 2, 3, 4, 5, 8
  size_t max_count = ~size_t{0};
  std::string filter;    ///< part of a case's text; empty: all
  bool gpus = false;     ///< cases that run on GPUs, instead of on the host
  bool network = false;  ///< only cases that run between hosts
  int host_count = 2;    ///< of Reach::kHosts
};

/// The cases: grouped by rank count, and within it by problem. Large counts are counts of the larger buffer:
/// collectives with a block per rank get their share of it.
std::vector<Case> cases(const Selection& selection);

}  // namespace tutti::matrix
