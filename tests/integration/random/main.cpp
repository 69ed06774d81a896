// SPDX-License-Identifier: Apache-2.0
// random_calls_test: random calls over two communicators, all checked. sequence.h describes the random choices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>

#include "integration/matrix/gpu.h"
#include "integration/matrix/team.h"
#include "integration/random/player.h"

namespace tutti::sequence {
namespace {

constexpr int kSkipped = 77;  // as CTest's SKIP_RETURN_CODE
constexpr size_t kDeviceBytes = size_t{128} << 20;

struct Wanted {
  Limits limits;
  size_t calls = 3000;
  int64_t round = -1;  ///< only that one
};

/// The rounds of all ranks. Ranks are threads of this process, so one thread has drawn for all.
struct Score {
  std::vector<Round> rounds;
  std::map<uint64_t, std::array<UniqueId, kCommunicators>> lives;
  size_t calls = 0;
};

Result<Score> draw(const Wanted& wanted) {
  Score score;
  const bool one = wanted.round >= 0;
  for (uint64_t number = one ? static_cast<uint64_t>(wanted.round) : 0; score.calls < wanted.calls; ++number) {
    score.rounds.push_back(draw_round(wanted.limits, number));
    score.calls += score.rounds.back().calls();
    auto& ids = score.lives[number / kLifeRounds];
    for (UniqueId& id : ids) {
      if (id != UniqueId()) continue;
      TUTTI_ASSIGN(id, UniqueId::create("=lo"));
    }
    if (one) break;
  }
  return score;
}

class Show {
 public:
  Show(const Wanted& wanted, const Score& score)
      : wanted_(wanted),
        score_(score),
        team_(wanted.limits.rank_count),
        statuses_(static_cast<size_t>(wanted.limits.rank_count)) {}

  /// Plays everything on every rank; the outcome of each.
  const std::vector<Status>& run() {
    team_.run([this](int rank) {
      Status& status = statuses_[static_cast<size_t>(rank)];
      status = play(rank);
      if (!status.ok()) failed_ = true;
      team_.leave();
    });
    return statuses_;
  }

 private:
  Status play(int rank) {
    if (wanted_.limits.gpus) matrix::use_gpu(rank);
    std::unique_ptr<PlayDevice> device = make_host_device();
    if (wanted_.limits.gpus) {
      TUTTI_ASSIGN(device, make_gpu_device(wanted_.limits.streams, kDeviceBytes));
    }
    team_.meet();
    Player player(*device);
    std::vector<Communicator> communicators;
    uint64_t life = ~uint64_t{0};
    for (const Round& round : score_.rounds) {
      if (round.number / kLifeRounds != life) {
        life = round.number / kLifeRounds;
        team_.meet();  // a communicator with captured calls waits for its GPU, which would invalidate other captures
        communicators.clear();
        TUTTI_TRY(join(rank, life, communicators));
      }
      Status played = player.play(round, communicators);
      if (played.ok()) continue;
      for (Communicator& communicator : communicators) communicator.abort(fmt::format("rank {} has failed", rank));
      return played;
    }
    team_.meet();
    return {};
  }

  Status join(int rank, uint64_t life, std::vector<Communicator>& communicators) const {
    if (failed_) return Status(Code::kAborted, "another rank has failed");
    for (uint32_t c = 0; c < kCommunicators; ++c) {
      const Options options = draw_options(wanted_.limits, life, c);
      auto joined = Communicator::create(score_.lives.at(life)[c], rank, team_.size(), options);
      if (!joined.ok()) return joined.status().with_context(fmt::format("communicator {} of life {}", c, life));
      communicators.push_back(*std::move(joined));
    }
    return {};
  }

  const Wanted& wanted_;
  const Score& score_;
  matrix::Team team_;
  std::vector<Status> statuses_;  // by rank
  std::atomic<bool> failed_ = false;
};

/// Prints the failure, and the command that repeats it. Ranks that were only told of the failure are left out.
void tell(const Wanted& wanted, const std::vector<Status>& statuses) {
  const auto& [seed, rank_count, gpus, max_bytes, streams, graphs_only, replays] = wanted.limits;
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    const Status& status = statuses[rank];
    if (!status.ok() && status.code() != Code::kAborted) {
      fmt::print(stderr, "FAILED rank {}: {}\n", rank, status.to_string());
    }
  }
  fmt::print(stderr,
             "to repeat it: random_calls_test --seed {} --ranks {} --calls {} --max-bytes {} --streams {} --replays {}"
             "{}{}; with --round N only that round\n",
             seed, rank_count, wanted.calls, max_bytes, streams, replays, graphs_only ? " --graphs-only" : "",
             gpus ? " --gpus" : "");
}

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()};
}

void declare(CLI::App& app, Wanted& wanted) {
  Limits& limits = wanted.limits;
  app.add_option("--seed", limits.seed, "Of the sequence (default: a new one)");
  app.add_option("--ranks", limits.rank_count, "Ranks (default 4, on GPUs as many as there are, at least 2)");
  app.add_option("--calls", wanted.calls, "At least so many calls, replays counted (default 3000)");
  app.add_option("--max-bytes", limits.max_bytes, "Of the larger buffer of a call (default 4 MiB)")
      ->check(CLI::Range(size_t{1} << 10, size_t{8} << 20));
  app.add_option("--streams", limits.streams, "On GPUs (default 3)")->check(CLI::Range(1, 16));
  app.add_option("--replays", limits.replays, "Of each graph (default 3)")->check(CLI::PositiveNumber);
  app.add_flag("--graphs-only", limits.graphs_only, "Every round is captured; else a third of them");
  app.add_option("--round", wanted.round, "Only the round with this number")->check(CLI::NonNegativeNumber);
  app.add_flag("--gpus", limits.gpus, "On GPUs: rank r on GPU r modulo their number");
}

int run(int argc, char** argv) {
  CLI::App app("Makes random calls over two communicators and checks every result.", "random_calls_test");
  Wanted wanted;
  wanted.limits.seed = random_seed();
  wanted.limits.rank_count = 0;
  declare(app, wanted);
  CLI11_PARSE(app, argc, argv);
  Limits& limits = wanted.limits;
  // So that no stream waits for a stream of a different rank.
  if (limits.gpus) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (limits.gpus && matrix::gpu_count() == 0) {
    fmt::print("skipped: there is no GPU, or this build has no CUDA\n");
    return kSkipped;
  }
  if (limits.rank_count == 0) limits.rank_count = limits.gpus ? std::max(2, matrix::gpu_count()) : 4;
  fmt::print("seed {}\n", limits.seed);
  std::fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  const auto score = draw(wanted);
  if (!score.ok()) {
    fmt::print(stderr, "FAILED {}\n", score.status().to_string());
    return 1;
  }
  Show show(wanted, *score);
  const auto& statuses = show.run();
  const bool passed = std::all_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); });
  if (!passed) tell(wanted, statuses);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto graphs =
      std::count_if(score->rounds.begin(), score->rounds.end(), [](const Round& round) { return round.graph; });
  fmt::print("{}: {} calls in {} rounds, {} of them as graphs with {} replays, {} ranks, {:.1f} s\n",
             passed ? "passed" : "failed", score->calls, score->rounds.size(), graphs, limits.replays,
             limits.rank_count, took.count());
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace tutti::sequence

int main(int argc, char** argv) {
  return tutti::sequence::run(argc, argv);
}
