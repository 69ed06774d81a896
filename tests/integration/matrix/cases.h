// SPDX-License-Identifier: Apache-2.0
// The correctness matrix: which calls are made over which settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/check/problem.h"

namespace tutti::matrix {

/// Over what ranks reach each other: all on one host, each on its own, or two hosts; or GPUs of one host, eager or by
/// replaying a graph.
enum class Reach { kOneHost, kOwnHosts, kTwoHosts, kGpus, kGraphs };
inline bool on_gpus(Reach reach) {
  return reach == Reach::kGpus || reach == Reach::kGraphs;
}

/// What a communicator is forced to use.
struct Setting {
  std::string algorithm;  ///< "ring", "direct/two-shot"
  std::string protocol;
  Reach reach;
  bool registered = false;  ///< on GPUs: all buffers lie in registered ones
  bool operator==(const Setting&) const = default;
};
Options options(const Setting& setting, int rank, int rank_count);
/// "ring/ll/one host".
std::string to_string(const Setting& setting);

/// Whether the setting's algorithm and protocol are known to do a collective. That they do is part of the test.
bool offers(const Setting& setting, Collective collective);

/// One call, of all ranks.
struct Case {
  check::Problem problem;
  bool in_place;
  Setting setting;
};
std::string to_string(const Case& one);

/// What to take from the matrix.
struct Selection {
  bool full = false;             ///< every combination; else a set in which every pair of values occurs that can
  uint64_t seed = 1;             ///< of inputs, and of the choice of pairs
  std::vector<int> rank_counts;  ///< empty: 1, 2, 3, 4, 5, 8
  size_t max_count = ~size_t{0};
  std::string filter;    ///< part of a case's text; empty: all
  bool gpus = false;     ///< what runs on GPUs, instead of on the host
  bool network = false;  ///< only what runs between hosts
};

/// The cases, those of one rank count together, and within it those of one problem.
/// Large counts are those of the larger buffer: collectives with a block per rank get their share of it.
std::vector<Case> cases(const Selection& selection);

}  // namespace tutti::matrix
