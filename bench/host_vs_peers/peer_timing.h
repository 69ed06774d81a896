// SPDX-License-Identifier: Apache-2.0
// One way of timing a collective of any library: every peer program measures through run_peer(), so figures compare.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace peer {

// As in `tutti bench`.
constexpr double kWarmUpUs = 500'000;
constexpr double kMostWarmUpCalls = 200;
constexpr double kEstimateUs = 5'000;
constexpr double kBatchUs = 20'000;

/// The values of the command line. `bytes` counts as in nccl-tests: the whole receive buffer of all_gather, the whole
/// send buffer of reduce_scatter, the buffer of every other collective. all_to_all sends an equal block to each rank.
struct Settings {
  std::string collective = "all_reduce";
  int ranks = 2;
  size_t min_bytes = 8;
  size_t max_bytes = size_t{1} << 24;
  size_t factor = 8;
  int iterations = 0;  ///< 0: as many as take kBatchUs
  int batches = 5;
};

inline void add_options(CLI::App& app, Settings& settings) {
  app.add_option("collective", settings.collective,
                 "all_reduce, all_gather, reduce_scatter, reduce, broadcast or all_to_all");
  app.add_option("--ranks", settings.ranks, "number of ranks")->check(CLI::PositiveNumber);
  app.add_option("--min", settings.min_bytes, "smallest size in bytes")->check(CLI::PositiveNumber);
  app.add_option("--max", settings.max_bytes, "largest size in bytes");
  app.add_option("--factor", settings.factor, "from one size to the next")->check(CLI::Range(2, 1 << 20));
  app.add_option("--iters", settings.iterations, "collectives in one timed batch (default: as many as take 20 ms)")
      ->check(CLI::PositiveNumber);
  app.add_option("--batches", settings.batches, "timed batches; their median counts")->check(CLI::PositiveNumber);
}

/// One rank's end of a library. All calls come from one thread, in the same order on every rank.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const char* library() const = 0;
  virtual int rank() const = 0;
  virtual void barrier() = 0;
  virtual double maximum_over_ranks(double value) = 0;
  /// The collective over float32 (sum, root 0) as a call to repeat, or an empty function if the library lacks it.
  virtual std::function<void()> bind(const std::string& collective, std::vector<float>& input,
                                     std::vector<float>& output) = 0;
};

/// Microseconds of one collective in a batch, which starts at a barrier and ends when the slowest rank is done.
inline double batch_us(Peer& peer, int iterations, const std::function<void()>& collective) {
  using Clock = std::chrono::steady_clock;
  peer.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < iterations; ++i) collective();
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return peer.maximum_over_ranks(elapsed.count()) / iterations;
}

/// Calls of one batch; the first calls are not timed. All ranks find the same number, since they know the same maximum.
inline int iterations_of(Peer& peer, const Settings& settings, const std::function<void()>& collective) {
  constexpr int kMost = 10'000;
  if (settings.iterations > 0) {
    for (int i = 0; i < settings.iterations / 4 + 1; ++i) collective();
    return settings.iterations;
  }
  batch_us(peer, 1, collective);  // may connect
  double us = batch_us(peer, 1, collective);
  if (us < kWarmUpUs) {
    us = batch_us(peer, static_cast<int>(std::clamp(kWarmUpUs / us, 1.0, kMostWarmUpCalls)), collective);
  }
  if (us < kEstimateUs) {
    us = batch_us(peer, static_cast<int>(std::clamp(kEstimateUs / us, 1.0, double{kMost})), collective);
  }
  return static_cast<int>(std::clamp(kBatchUs / us, 1.0, double{kMost}));
}

inline double median_us(Peer& peer, const Settings& settings, const std::function<void()>& collective) {
  const int iterations = iterations_of(peer, settings, collective);
  std::vector<double> batches_us;
  for (int batch = 0; batch < settings.batches; ++batch) {
    batches_us.push_back(batch_us(peer, iterations, collective));
  }
  const auto middle = batches_us.begin() + settings.batches / 2;
  std::nth_element(batches_us.begin(), middle, batches_us.end());
  return *middle;
}

/// The last element that a correct collective leaves when rank r contributes r + 1 everywhere.
inline float expected_last(const Settings& settings) {
  const int n = settings.ranks;
  if (settings.collective == "broadcast") return 1.0F;
  const bool stores = settings.collective == "all_gather" || settings.collective == "all_to_all";
  return static_cast<float>(stores ? n : n * (n + 1) / 2);
}

/// Times one size and prints a line of JSON; false if the result is wrong or the library lacks the collective.
inline bool time_size(Peer& peer, const Settings& settings, size_t bytes) {
  const auto ranks = static_cast<size_t>(settings.ranks);
  const size_t whole = std::max<size_t>(bytes / sizeof(float), 1);
  const size_t block = std::max<size_t>(whole / ranks, 1);
  std::vector<float> input(settings.collective == "all_gather" ? block : whole, static_cast<float>(peer.rank() + 1));
  std::vector<float> output(settings.collective == "reduce_scatter" ? block : whole, -1.0F);
  if (settings.collective == "all_gather") output.resize(block * ranks, -1.0F);
  if (settings.collective == "reduce_scatter") input.resize(block * ranks, input.front());
  if (settings.collective == "all_to_all") {
    input.resize(block * ranks, input.front());
    output.resize(block * ranks, -1.0F);
  }

  const auto collective = peer.bind(settings.collective, input, output);
  if (!collective) {
    if (peer.rank() == 0) std::fprintf(stderr, "%s has no %s\n", peer.library(), settings.collective.c_str());
    return false;
  }
  const double us = median_us(peer, settings, collective);
  const bool has_result = settings.collective != "reduce" || peer.rank() == 0;
  if (has_result && output.back() != expected_last(settings)) {
    std::fprintf(stderr, "%s, rank %d, %zu bytes: wrong result\n", peer.library(), peer.rank(), bytes);
    return false;
  }
  if (peer.rank() == 0) {
    std::printf(R"({"library": "%s", "collective": "%s", "ranks": %d, "bytes": %zu, "us": %.3f})", peer.library(),
                settings.collective.c_str(), settings.ranks, bytes, us);
    std::printf("\n");
    std::fflush(stdout);
  }
  return true;
}

/// Times every size; returns the program's exit code.
inline int run_peer(Peer& peer, const Settings& settings) {
  for (size_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= settings.factor) {
    if (!time_size(peer, settings, bytes)) return 1;
  }
  return 0;
}

}  // namespace peer
