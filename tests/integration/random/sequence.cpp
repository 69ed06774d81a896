// SPDX-License-Identifier: Apache-2.0
#include "integration/random/sequence.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "tools/check/random_input.h"

namespace tutti::sequence {
namespace {

constexpr uint64_t kMostUnits = 4;
constexpr uint64_t kMostGrouped = 6;
constexpr uint64_t kMostLarge = 3;  // large calls of a round: its buffers must fit into memory that is taken once
constexpr size_t kMediumElements = 70'000;
constexpr uint64_t kMostShift = 4;

/// Distributions of the standard library differ between its implementations; this class does not.
class Random {
 public:
  explicit Random(uint64_t seed) : words_(seed) {}
  uint64_t below(uint64_t end) { return words_() % end; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T, size_t kCount>
  const T& of(const std::array<T, kCount>& values) {
    return values[below(kCount)];
  }

 private:
  std::mt19937_64 words_;
};

class Drawing {
 public:
  Drawing(const Limits& limits, uint64_t number)
      : limits_(limits), random_(check::mix(limits.seed + check::mix(number))) {
    round_.number = number;
  }

  Round draw() {
    round_.graph = limits_.graphs_only || random_.one_in(3);
    round_.plays = round_.graph ? limits_.replays : 1;
    const uint64_t units = 1 + random_.below(kMostUnits);
    for (uint64_t u = 0; u < units; ++u) round_.units.push_back(unit());
    if (round_.graph && random_.one_in(2)) {
      round_.units.push_back(unit());
      round_.units.back().eager = true;
      for (Call& call : round_.units.back().calls) call.stream = 0;  // the stream on which the graph is launched
    }
    return std::move(round_);
  }

 private:
  Unit unit() {
    Unit unit;
    const uint64_t calls = random_.one_in(3) ? 2 + random_.below(kMostGrouped - 1) : 1;
    const bool one_stream = random_.one_in(2);
    uint32_t stream = 0;
    for (uint64_t i = 0; i < calls; ++i) {
      if (i == 0 || !one_stream) stream = static_cast<uint32_t>(random_.below(limits_.streams));
      unit.calls.push_back(call());
      unit.calls.back().stream = stream;
    }
    return unit;
  }

  Call call() {
    Call call;
    check::Problem& problem = call.problem;
    const uint64_t kind = random_.below(kCollectiveCount + 1);
    problem.uneven = kind == kCollectiveCount;
    problem.collective = problem.uneven ? Collective::kAllToAll : static_cast<Collective>(kind);
    problem.type = static_cast<DataType>(random_.below(kDataTypeCount));
    if (check::reduces(problem.collective)) problem.op = static_cast<ReduceOp>(random_.below(kReduceOpCount));
    problem.rank_count = limits_.rank_count;
    const auto ranks = static_cast<uint64_t>(limits_.rank_count);
    if (check::has_root(problem.collective)) problem.root = static_cast<int>(random_.below(ranks));
    problem.count = elements(size_of(problem.type));
    if (problem.count > 64 && check::has_blocks(problem.collective)) problem.count /= ranks;
    problem.seed = check::mix(limits_.seed ^ check::mix(round_.number * 64 + ++calls_));
    call.in_place = check::in_place(problem, 0).has_value() && random_.one_in(2);
    call.communicator = static_cast<uint32_t>(random_.below(kCommunicators));
    call.input_shift = random_.below(kMostShift);
    call.output_shift = random_.below(kMostShift);
    return call;
  }

  /// Few elements prevail: there, calls differ most from each other.
  size_t elements(size_t element_bytes) {
    const uint64_t kind = random_.below(40);
    if (kind < 4) return 0;
    if (kind < 7) return 1;
    if (kind < 22) return 1 + random_.below(64);
    if (kind < 36) return 1 + random_.below(5000);
    const size_t most = limits_.max_bytes / element_bytes;
    if (kind < 39 || ++large_ > kMostLarge) return random_.below(std::min(kMediumElements, most));
    return most - random_.below(std::min<size_t>(100, most));
  }

  const Limits& limits_;
  Random random_;
  Round round_;
  uint64_t calls_ = 0;
  uint64_t large_ = 0;
};

}  // namespace

size_t Round::calls() const {
  const size_t calls = std::accumulate(units.begin(), units.end(), size_t{0},
                                       [](size_t sum, const Unit& unit) { return sum + unit.calls.size(); });
  return calls * static_cast<size_t>(plays);
}

Round draw_round(const Limits& limits, uint64_t number) {
  return Drawing(limits, number).draw();
}

Options draw_options(const Limits& limits, uint64_t life, uint32_t communicator) {
  constexpr std::array<const char*, 6> kAlgorithms = {
      "auto", "ring", "tree", "direct/shifted", "direct/two-shot", "direct/one-shot"};
  constexpr std::array<const char*, 4> kProtocols = {"auto", "simple", "ll", "ll128"};  // the last on GPUs only
  constexpr std::array<const char*, 4> kChannels = {"0", "1", "3", "16"};
  constexpr std::array<const char*, 3> kSlots = {"4", "8", "16"};
  Random random(check::mix(~limits.seed) + check::mix(life));
  Options options;
  options.settings = {{"timeouts.operation", "30s"}, {"device", limits.gpus ? "cuda" : "host"}};
  if (communicator == 0) return options;
  options.settings.emplace_back("algorithm", random.of(kAlgorithms));
  options.settings.emplace_back("protocol", kProtocols[random.below(limits.gpus ? 4 : 3)]);
  options.settings.emplace_back("channels", random.of(kChannels));
  options.settings.emplace_back(limits.gpus ? "p2p.slots" : "shm.slots", random.of(kSlots));
  if (!limits.gpus && random.one_in(3)) options.settings.emplace_back("transport", "net");
  return options;
}

}  // namespace tutti::sequence
