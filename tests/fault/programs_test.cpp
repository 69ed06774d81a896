// SPDX-License-Identifier: Apache-2.0
// Pairs of programs: all ranks run one sequence of calls, but one rank runs a sequence that differs in one call. No
// rank may get a wrong result with code ok, and nothing may hang. The difference must be named: by kMismatch if
// messages, or the comparison in the background, show it; at the end, by the numbers of calls.
//
// PROGRAM_PAIRS=1000 and PROGRAM_SEED=n in the environment set the number of pairs and the first pair.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "log/log.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

using Random = std::mt19937_64;
using Clock = std::chrono::steady_clock;

constexpr int kDefaultPairs = 100;
constexpr std::chrono::seconds kEnd{30};

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

struct Step {
  Collective collective = Collective::kAllReduce;
  size_t count = 1;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  ///< for messages: every rank sends to the rank that is so many places above it
  bool operator==(const Step&) const = default;
};

/// A step of messages: every rank sends to one rank and receives from one rank.
bool is_messages(Collective collective) {
  return collective == Collective::kSendRecv;
}
bool is_rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}
bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

/// The step as calls see it: an argument that the collective does not use makes no difference.
Step normal(Step step) {
  if (!is_rooted(step.collective) && !is_messages(step.collective)) step.root = 0;
  if (!reduces(step.collective)) step.op = ReduceOp::kSum;
  return step;
}

/// The collectives that an algorithm runs.
std::vector<Collective> collectives_of(const std::string& algorithm) {
  using enum Collective;
  if (algorithm == "tree") return {kAllReduce, kBroadcast, kReduce};
  if (algorithm == "ring") return {kAllReduce, kBroadcast, kReduce, kReduceScatter, kAllGather};
  return {kAllReduce, kBroadcast, kReduce, kReduceScatter, kAllGather, kAllToAll, kGather, kScatter};
}

/// Makes the steps of one pair.
class Steps {
 public:
  Steps(Random& random, int ranks, const std::string& algorithm)
      : random_(random), ranks_(ranks), collectives_(collectives_of(algorithm)) {}

  Collective collective() { return collectives_[random_() % collectives_.size()]; }
  int distance() { return 1 + static_cast<int>(random_() % static_cast<uint64_t>(ranks_ - 1)); }
  Collective collective(bool (*suits)(Collective)) {
    for (;;) {
      if (const Collective candidate = collective(); suits(candidate)) return candidate;
    }
  }
  int root() { return static_cast<int>(random_() % static_cast<uint64_t>(ranks_)); }
  Step any() {
    Step step;
    step.collective = collective();
    step.count = pick<size_t>(random_, {1, 2, 10, 64, 1000, 5000});
    step.type = type();
    step.op = pick(random_, {ReduceOp::kSum, ReduceOp::kMax});
    step.root = root();
    return normal(step);
  }
  /// Messages, in one of three cases.
  Step any_or_messages() {
    Step step = any();
    if (random_() % 3 != 0) return step;
    step.collective = Collective::kSendRecv;
    step.root = distance();
    return normal(step);
  }
  DataType type() { return pick(random_, {DataType::kInt32, DataType::kUint32, DataType::kInt64}); }
  size_t other_count() { return pick<size_t>(random_, {1, 2, 3, 11, 63, 65, 999, 6000}); }

 private:
  Random& random_;
  int ranks_;
  std::vector<Collective> collectives_;
};

// Values that depend on the call, the rank and the place, and whose sums do not overflow.
int64_t value_of(size_t call, int rank, size_t place) {
  return static_cast<int64_t>((call * 7919 + static_cast<size_t>(rank) * 104729 + place * 31) % 1000003);
}

size_t input_blocks(const Step& step, int ranks) {
  const bool many = step.collective == Collective::kReduceScatter || step.collective == Collective::kAllToAll ||
                    step.collective == Collective::kScatter;
  return many ? static_cast<size_t>(ranks) : 1;
}
size_t output_blocks(const Step& step, int ranks) {
  const bool many = step.collective == Collective::kAllGather || step.collective == Collective::kAllToAll ||
                    step.collective == Collective::kGather;
  return many ? static_cast<size_t>(ranks) : 1;
}

int64_t reduced(const Step& step, int ranks, size_t call, size_t place) {
  int64_t result = value_of(call, 0, place);
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t next = value_of(call, rank, place);
    result = step.op == ReduceOp::kSum ? result + next : std::max(result, next);
  }
  return result;
}

/// Element `i` of the output of `rank`, when all ranks make this call.
int64_t expected(const Step& step, int ranks, int rank, size_t call, size_t i) {
  const size_t own = static_cast<size_t>(rank) * step.count;
  const auto from = static_cast<int>(i / step.count);
  switch (step.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(step, ranks, call, i);
    case Collective::kReduceScatter:
      return reduced(step, ranks, call, own + i);
    case Collective::kAllGather:
    case Collective::kGather:
      return value_of(call, from, i % step.count);
    case Collective::kBroadcast:
      return value_of(call, step.root, i);
    case Collective::kAllToAll:
      return value_of(call, from, own + i % step.count);
    case Collective::kScatter:
      return value_of(call, step.root, own + i);
    case Collective::kSendRecv:
      return value_of(call, (rank - step.root + ranks) % ranks, i);
  }
  return 0;
}

Status exchange(Communicator& comm, const Step& s, const void* in, void* out) {
  const int ranks = comm.size();
  EXPECT_TRUE(group_start().ok());
  const Status sent = comm.send(in, s.count, s.type, (comm.rank() + s.root) % ranks);
  const Status received = comm.recv(out, s.count, s.type, (comm.rank() - s.root + ranks) % ranks);
  const Status ended = group_end();
  return !sent.ok() ? sent : !received.ok() ? received : ended;
}

Status call(Communicator& comm, const Step& s, const void* in, void* out) {
  switch (s.collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(in, out, s.count, s.type, s.op);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(in, out, s.count, s.type, s.op);
    case Collective::kAllGather:
      return comm.all_gather(in, out, s.count, s.type);
    case Collective::kBroadcast:
      return comm.broadcast(in, out, s.count, s.type, s.root);
    case Collective::kReduce:
      return comm.reduce(in, out, s.count, s.type, s.op, s.root);
    case Collective::kAllToAll:
      return comm.all_to_all(in, out, s.count, s.type);
    case Collective::kGather:
      return comm.gather(in, out, s.count, s.type, s.root);
    case Collective::kScatter:
      return comm.scatter(in, out, s.count, s.type, s.root);
    case Collective::kSendRecv:
      return exchange(comm, s, in, out);
  }
  return {};
}

template <class T>
bool run_as(Communicator& comm, const Step& step, size_t number, Status& status) {
  const int ranks = comm.size();
  const int rank = comm.rank();
  std::vector<T> in(input_blocks(step, ranks) * step.count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(value_of(number, rank, i));
  std::vector<T> out(output_blocks(step, ranks) * step.count, static_cast<T>(-1));
  status = call(comm, step, in.data(), out.data());
  const bool only_root = step.collective == Collective::kReduce || step.collective == Collective::kGather;
  if (!status.ok() || (only_root && rank != step.root)) return true;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] != static_cast<T>(expected(step, ranks, rank, number, i))) return false;
  }
  return true;
}

/// Whether the result is that of this call on all ranks, or no result.
bool run_step(Communicator& comm, const Step& step, size_t number, Status& status) {
  if (step.type == DataType::kInt32) return run_as<int32_t>(comm, step, number, status);
  if (step.type == DataType::kUint32) return run_as<uint32_t>(comm, step, number, status);
  return run_as<int64_t>(comm, step, number, status);
}

struct Entry {
  Step step;
  size_t number;  ///< seed of its data
};
using Program = std::vector<Entry>;

enum class Difference {
  kCollective,
  kRoot,
  kCount,
  kZero,
  kType,
  kOperation,
  kOrder,
  kOneMore,
  kOneFewer,
  kEqualFewer
};
constexpr std::array<const char*, 10> kNames = {"collective", "root",  "count",    "count 0",   "type",
                                                "operation",  "order", "one more", "one fewer", "one of equal fewer"};

struct Pair {
  int ranks = 2;
  int odd = 0;  ///< the rank that differs
  Difference difference = Difference::kCount;
  Program common;
  Program other;
  std::vector<std::pair<std::string, std::string>> settings;
  bool two_hosts = false;

  /// The number of calls of both programs that look the same. If one of several equal calls is missing, they may have
  /// different data, and no call can tell.
  size_t alike() const {
    const auto same = [](const Entry& a, const Entry& b) { return a.step == b.step; };
    const auto ends = std::mismatch(common.begin(), common.end(), other.begin(), other.end(), same);
    return static_cast<size_t>(ends.first - common.begin());
  }
  std::string describe() const {
    std::string text = fmt::format("{} on rank {} of {}{}:", kNames[static_cast<size_t>(difference)], odd, ranks,
                                   two_hosts ? ", two hosts" : "");
    for (const auto& [key, value] : settings) text += fmt::format(" {}={}", key, value);
    for (const Program* program : {&common, &other}) {
      text += "\n ";
      for (const Entry& entry : *program)
        text += fmt::format(" {}({}×{},{},r{})", to_string(entry.step.collective), entry.step.count,
                            to_string(entry.step.type), to_string(entry.step.op), entry.step.root);
    }
    return text;
  }
};

/// A changed step, which differs in an argument that calls see.
Step changed(Steps& steps, Difference difference, const Step& before) {
  Step step = before;
  while (step == before) {
    if (difference == Difference::kCollective) step.collective = steps.collective();
    if (difference == Difference::kRoot) step.root = steps.root();
    if (difference == Difference::kCount) step.count = steps.other_count();
    if (difference == Difference::kZero) step.count = 0;
    if (difference == Difference::kType) step.type = steps.type();
    if (difference == Difference::kOperation) step.op = step.op == ReduceOp::kSum ? ReduceOp::kMax : ReduceOp::kSum;
    step = normal(step);
  }
  return step;
}

/// Makes `other`, which differs from `common` in call `at`.
void make_other(Pair& pair, Steps& steps, size_t at) {
  const auto place = static_cast<ptrdiff_t>(at);
  pair.other = pair.common;
  switch (pair.difference) {
    case Difference::kOrder:
      std::swap(pair.other[at - 1], pair.other[at]);
      break;
    case Difference::kOneMore:
      pair.other.insert(pair.other.begin() + place, {steps.any(), 99});
      break;
    case Difference::kOneFewer:
    case Difference::kEqualFewer:
      pair.other.erase(pair.other.begin() + place);
      break;
    default:
      pair.other[at].step = changed(steps, pair.difference, pair.common[at].step);
  }
}

Pair random_pair(Random& random, Difference difference) {
  Pair pair;
  pair.difference = difference;
  pair.ranks = static_cast<int>(2 + random() % 4);
  pair.odd = static_cast<int>(random() % static_cast<uint64_t>(pair.ranks));
  const auto algorithm = pick<std::string>(random, {"auto", "direct", "ring", "tree"});
  pair.settings = {{"algorithm", algorithm}, {"protocol", pick<std::string>(random, {"auto", "simple", "ll"})}};
  pair.two_hosts = random() % 3 == 0;
  Steps steps(random, pair.ranks, algorithm);
  const size_t calls = 3 + random() % 4;
  const size_t at = 1 + random() % (calls - 1);
  // If a rank makes a collective call while its peers exchange messages, both sides wait for each other, and no call
  // shows the difference. So messages differ in their count or type, or come before the changed call.
  const bool in_messages = difference == Difference::kCount || difference == Difference::kType;
  const size_t messages_end = at + (in_messages ? 1 : 0) - (difference == Difference::kOrder ? 1 : 0);
  for (size_t i = 0; i < calls; ++i)
    pair.common.push_back({i < messages_end ? steps.any_or_messages() : steps.any(), i});
  Step& step = pair.common[at].step;
  if (difference == Difference::kOperation) step.collective = steps.collective(reduces);
  if (difference == Difference::kRoot) step.collective = steps.collective(is_rooted);
  step = normal(step);
  while (difference == Difference::kOrder && step == pair.common[at - 1].step) step = steps.any();
  if (difference == Difference::kEqualFewer)
    for (Entry& entry : pair.common) entry.step = pair.common[at].step;
  make_other(pair, steps, at);
  return pair;
}

/// The result of a pair.
struct Outcome {
  int mismatches = 0;  ///< ranks that got it
  int left = 0;        ///< ranks that were told of a rank that left
  int wrong = 0;       ///< results with code ok
  int unseen = 0;      ///< wrong results of calls that look the same on all ranks
  bool named = false;  ///< by a line of the log
  std::string text;
};

/// The lines that name a difference, of the pair that runs.
class Lines {
 public:
  Lines() {
    log::set_filter([this](log::Level level, int, std::string_view text) {
      const std::lock_guard lock(mutex_);
      if (level <= log::Level::kError) text_ += fmt::format("{}\n", text);
      return false;
    });
  }
  ~Lines() { log::set_filter(nullptr); }
  std::string take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, {});
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

Outcome play(const Pair& pair, Lines& lines) {
  Outcome outcome;
  std::mutex mutex;
  const auto id = UniqueId::create("=lo");
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < pair.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Options options{"", pair.settings};
      options.settings.emplace_back("plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins");
      options.settings.emplace_back("timeouts.operation", "60s");
      if (pair.two_hosts) options.settings.emplace_back("host", rank % 2 == 0 ? "a" : "b");
      auto comm = Communicator::create(*id, rank, pair.ranks, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      Status status;
      int wrong = 0;
      int unseen = 0;
      const Program& program = rank == pair.odd ? pair.other : pair.common;
      for (size_t i = 0; i < program.size() && status.ok(); ++i) {
        if (!run_step(*comm, program[i].step, program[i].number, status)) ++(i < pair.alike() ? unseen : wrong);
      }
      const std::lock_guard lock(mutex);
      outcome.wrong += wrong;
      outcome.unseen += unseen;
      outcome.mismatches += status.code() == Code::kMismatch;
      outcome.left += status.code() == Code::kRemote;
      EXPECT_TRUE(status.ok() || status.code() == Code::kMismatch || status.code() == Code::kRemote)
          << status.to_string();
      if (!status.ok()) outcome.text += fmt::format("rank {}: {}\n", rank, status.to_string());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string logged = lines.take();
  outcome.named = logged.find("made different") != std::string::npos || logged.find("left before") != std::string::npos;
  outcome.text += logged;
  return outcome;
}

uint64_t number_of(const char* name, uint64_t fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

TEST(Programs, DifferencesAreNamedAndNoResultIsWrong) {
  const uint64_t pairs = number_of("PROGRAM_PAIRS", kDefaultPairs);
  const uint64_t seed = number_of("PROGRAM_SEED", std::random_device{}());
  fmt::print("PROGRAM_SEED={} PROGRAM_PAIRS={}\n", seed, pairs);
  struct Row {
    int pairs = 0, in_call = 0, by_leave = 0, at_end = 0, wrong = 0, unseen = 0;
  };
  int good = 0, hung = 0;
  std::array<Row, kNames.size()> rows;
  Lines lines;
  for (uint64_t i = 0; i < pairs; ++i) {
    Random random(seed + i);
    const auto kind = static_cast<size_t>(i % kNames.size());
    const Pair pair = random_pair(random, static_cast<Difference>(kind));
    SCOPED_TRACE(fmt::format("PROGRAM_SEED={}, pair {}: {}", seed, i, pair.describe()));
    const auto start = Clock::now();
    const Outcome outcome = play(pair, lines);
    const bool in_time = Clock::now() - start < kEnd;
    EXPECT_TRUE(in_time);
    EXPECT_TRUE(outcome.named) << "no rank names the difference\n" << outcome.text;
    EXPECT_EQ(outcome.wrong, 0) << "wrong results with code ok\n" << outcome.text;
    Row& row = rows[kind];
    ++row.pairs;
    ++(outcome.mismatches > 0 ? row.in_call : outcome.left > 0 ? row.by_leave : row.at_end);
    row.wrong += outcome.wrong;
    row.unseen += outcome.unseen;
    hung += in_time ? 0 : 1;
    good += in_time && outcome.named && outcome.wrong == 0 ? 1 : 0;
    if (testing::Test::HasFailure() && pairs <= kDefaultPairs) break;
  }
  fmt::print("{:20} {:>6} {:>10} {:>10} {:>8} {:>8} {:>12}\n", "difference", "pairs", "mismatch", "rank left", "at end",
             "wrong", "equal calls");
  for (size_t kind = 0; kind < rows.size(); ++kind) {
    const Row& row = rows[kind];
    fmt::print("{:20} {:6} {:10} {:10} {:8} {:8} {:12}\n", kNames[kind], row.pairs, row.in_call, row.by_leave,
               row.at_end, row.wrong, row.unseen);
  }
  // For suite.py.
  fmt::print(R"(tally: {{"kind": "programs that differ in one call", "runs": {}, "named": {}, "completed": 0, )"
             R"("failed": {}, "hung": {}, "problems": {}}}{})",
             pairs, good, good, hung, pairs - static_cast<uint64_t>(good), "\n");
}

}  // namespace
}  // namespace tutti
