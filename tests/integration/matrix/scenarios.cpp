// SPDX-License-Identifier: Apache-2.0
#include "integration/matrix/scenarios.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "tools/check/compare.h"
#include "tools/check/random_input.h"

namespace tutti::matrix {
namespace {

using check::mix;

/// Every rank derives the same numbers from the seed, in any order.
uint64_t draw(uint64_t seed, int from, int to, uint64_t index) {
  return mix(mix(mix(seed + index) + static_cast<uint64_t>(from)) + static_cast<uint64_t>(to));
}

Status wrong(const std::string& text) {
  return Status(Code::kInternal, text);
}

/// Message `index` of `from` to `to`.
std::vector<uint64_t> message(uint64_t seed, int from, int to, uint64_t index, size_t count) {
  std::vector<uint64_t> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = mix(draw(seed, from, to, index) + i);
  return words;
}

/// A third of the counts are zero, the rest up to 5000 with mostly small counts.
size_t random_count(uint64_t word) {
  if (word % 3 == 0) return 0;
  return (word >> 8) % (word % 3 == 1 ? 20 : 5000);
}

/// all_to_all_v with random counts and gaps between the blocks.
Status uneven_all_to_all(Communicator& communicator, uint64_t seed) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  std::vector<size_t> send_counts, send_offsets, recv_counts, recv_offsets;
  std::vector<uint64_t> input, expected;
  constexpr uint64_t kGap = 0x6a6a6a6a6a6a6a6a;
  for (int peer = 0; peer < size; ++peer) {
    send_counts.push_back(random_count(draw(seed, rank, peer, 0)));
    recv_counts.push_back(random_count(draw(seed, peer, rank, 0)));
    input.resize(input.size() + draw(seed, rank, peer, 1) % 3, kGap);
    expected.resize(expected.size() + draw(seed, peer, rank, 2) % 3, kGap);
    send_offsets.push_back(input.size());
    recv_offsets.push_back(expected.size());
    const auto sent = message(seed, rank, peer, 3, send_counts.back());
    const auto received = message(seed, peer, rank, 3, recv_counts.back());
    input.insert(input.end(), sent.begin(), sent.end());
    expected.insert(expected.end(), received.begin(), received.end());
  }
  std::vector<uint64_t> output(expected.size(), kGap);
  TUTTI_TRY(communicator.all_to_all_v(input.data(), send_counts, send_offsets, output.data(), recv_counts, recv_offsets,
                                      DataType::kUint64));
  return output == expected ? Status() : wrong("all_to_all_v: wrong elements, or a gap was written");
}

/// Random messages between random pairs, to oneself too, several per pair, in one group.
Status random_messages(Communicator& communicator, uint64_t seed) {
  constexpr uint64_t kMessages = 3;
  const int size = communicator.size();
  const int rank = communicator.rank();
  std::vector<std::vector<uint64_t>> inputs, outputs, expected;
  for (int peer = 0; peer < size; ++peer) {
    for (uint64_t i = 0; i < kMessages; ++i) {
      inputs.push_back(message(seed, rank, peer, i, random_count(draw(seed, rank, peer, i))));
      expected.push_back(message(seed, peer, rank, i, random_count(draw(seed, peer, rank, i))));
      outputs.emplace_back(expected.back().size());
    }
  }
  TUTTI_TRY(group_start());
  Status status;
  for (size_t m = 0; m < inputs.size() && status.ok(); ++m) {
    const int peer = static_cast<int>(m / kMessages);
    status = communicator.send(inputs[m].data(), inputs[m].size(), DataType::kUint64, peer);
    if (status.ok()) status = communicator.recv(outputs[m].data(), outputs[m].size(), DataType::kUint64, peer);
  }
  const Status done = group_end();
  TUTTI_TRY(status);
  TUTTI_TRY(done);
  return outputs == expected ? Status() : wrong("grouped sends and receives: wrong elements");
}

/// A group within a group runs nothing: the message to this rank itself meets its receive at the end of the outer one.
Status nested_groups(Communicator& communicator, uint64_t seed) {
  const uint64_t sent = mix(seed);
  uint64_t received = 0;
  TUTTI_TRY(group_start());
  TUTTI_TRY(group_start());
  Status status = communicator.send(&sent, 1, DataType::kUint64, communicator.rank());
  const Status inner = group_end();
  if (status.ok()) status = communicator.recv(&received, 1, DataType::kUint64, communicator.rank());
  const Status outer = group_end();
  TUTTI_TRY(status);
  TUTTI_TRY(inner);
  TUTTI_TRY(outer);
  return received == sent ? Status() : wrong("a group within a group: wrong message");
}

/// One checked all-reduce.
Status all_reduce(Communicator& communicator, uint64_t seed, size_t count = 1000) {
  const check::Problem problem{.rank_count = communicator.size(), .count = count, .seed = seed};
  const int rank = communicator.rank();
  std::vector<float> input(count), output(count);
  check::fill_input(problem, rank, 0, count, input.data());
  TUTTI_TRY(communicator.all_reduce(input.data(), output.data(), count, problem.type, problem.op));
  const auto comparison = check::compare(problem, check::Reference::for_rank(problem, rank), rank, output.data());
  return comparison.wrong == 0 ? Status() : wrong("all_reduce: " + comparison.first);
}

/// Odd and even ranks apart, in reversed order; the last rank joins none. Then splits of a split.
Status split(Communicator& communicator, uint64_t seed) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  const bool joins = size == 1 || rank != size - 1;
  const int color = joins ? rank % 2 : -1;
  TUTTI_ASSIGN(auto part, communicator.split(color, -rank));
  if (part.has_value() != joins) return wrong("split: a color below 0 must give no communicator, any other one");
  if (part) {
    std::vector<int> members;
    for (int other = size - 1; other >= 0; --other) {
      if (other % 2 == color && (size == 1 || other != size - 1)) members.push_back(other);
    }
    if (part->size() != static_cast<int>(members.size())) return wrong("split: wrong size");
    if (members[static_cast<size_t>(part->rank())] != rank) return wrong("split: wrong order");
    TUTTI_TRY(all_reduce(*part, seed));
    TUTTI_ASSIGN(auto whole, part->split(0, part->rank()));
    if (!whole) return wrong("split of a split: no communicator");
    TUTTI_TRY(all_reduce(*whole, seed + 1));
  }
  return all_reduce(communicator, seed + 2);
}

Result<std::vector<Communicator>> copies(Communicator& communicator, int count) {
  std::vector<Communicator> copies;
  for (int i = 0; i < count; ++i) {
    TUTTI_ASSIGN(auto copy, communicator.split(0, communicator.rank()));
    copies.push_back(std::move(*copy));
  }
  return copies;
}

/// Several communicators at once, each from a thread of its own.
Status threads(Communicator& communicator, uint64_t seed) {
  TUTTI_ASSIGN(auto mine, copies(communicator, 3));
  std::vector<Status> statuses(mine.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < mine.size(); ++i) {
      threads.emplace_back([&, i] {
        for (uint64_t round = 0; round < 20 && statuses[i].ok(); ++round) {
          statuses[i] = all_reduce(mine[i], seed + round, 100 * (i + 1));
        }
      });
    }
  }
  for (const Status& status : statuses) TUTTI_TRY(status);
  return {};
}

/// Collectives and messages of several communicators in one group of one thread. Ranks name them in different orders,
/// which only a group allows.
Status group(Communicator& communicator, uint64_t seed) {
  constexpr size_t kCount = 500;
  constexpr int kCommunicators = 3;
  TUTTI_ASSIGN(auto mine, copies(communicator, kCommunicators));
  const int rank = communicator.rank();
  const int size = communicator.size();
  const check::Problem problem{.rank_count = size, .count = kCount, .seed = seed};
  std::vector<float> input(kCount);
  check::fill_input(problem, rank, 0, kCount, input.data());
  std::vector<std::vector<float>> outputs(kCommunicators, std::vector<float>(kCount));
  std::vector<int> heard(kCommunicators, -1);

  TUTTI_TRY(group_start());
  Status status;
  for (int turn = 0; turn < kCommunicators && status.ok(); ++turn) {
    const auto i = static_cast<size_t>((rank + turn) % kCommunicators);
    status = mine[i].all_reduce(input.data(), outputs[i].data(), kCount, problem.type, problem.op);
    if (status.ok()) status = mine[i].send(&rank, 1, DataType::kInt32, (rank + 1) % size);
    if (status.ok()) status = mine[i].recv(&heard[i], 1, DataType::kInt32, (rank + size - 1) % size);
  }
  const Status done = group_end();
  TUTTI_TRY(status);
  TUTTI_TRY(done);
  const auto reference = check::Reference::for_rank(problem, rank);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto comparison = check::compare(problem, reference, rank, outputs[i].data());
    if (comparison.wrong > 0) return wrong("all_reduce in a group: " + comparison.first);
    if (heard[i] != (rank + size - 1) % size) return wrong("a message in a group came from the wrong rank");
  }
  return {};
}

/// The collectives that a communicator's setting does, in calls of a kind.
std::vector<check::Problem> problems(const Communicator& communicator, ReduceOp op, size_t count, uint64_t seed) {
  std::vector<check::Problem> offered;
  for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
    check::Problem problem{.collective = static_cast<Collective>(collective),
                           .op = op,
                           .rank_count = communicator.size(),
                           .root = communicator.size() - 1,
                           .count = count,
                           .seed = seed + collective};
    const bool is_message = problem.collective == Collective::kSendRecv;
    if (!is_message && !communicator.choose(problem.collective, count, problem.type, op).ok()) continue;
    offered.push_back(problem);
  }
  return offered;
}

/// One call. The input is overwritten when the call returns, while other ranks may still be in it.
Status call_and_overwrite(Communicator& communicator, const check::Problem& problem) {
  const int rank = communicator.rank();
  std::vector<float> input(check::input_elements(problem, rank));
  std::vector<float> output(check::output_elements(problem, rank));
  check::fill_input(problem, rank, 0, input.size(), input.data());
  const check::Call call(problem, rank);
  TUTTI_TRY(call(communicator, input.data(), output.data()));
  std::fill(input.begin(), input.end(), -1e30F);
  const auto comparison = check::compare(problem, check::Reference::for_rank(problem, rank), rank, output.data());
  if (comparison.wrong == 0) return {};
  return wrong(fmt::format("{}: {} wrong: {}", to_string(problem), comparison.wrong, comparison.first));
}

/// Messages of this size and above are copied once: receivers read them from the sender's buffer.
constexpr size_t kSingleCopyBytes = 4096;
/// Elements of a block for which every algorithm makes messages of this size.
constexpr size_t kSingleCopyCount = 16 * kSingleCopyBytes / sizeof(float) + 3;

/// Each rank's factor must reach its terms, also where peers read them from the rank's own buffer.
Status large_pre_multiplied_sums(Communicator& communicator, uint64_t seed) {
  for (const check::Problem& problem : problems(communicator, ReduceOp::kPreMulSum, kSingleCopyCount, seed)) {
    if (check::reduces(problem.collective)) TUTTI_TRY(call_and_overwrite(communicator, problem));
  }
  return {};
}

/// Inputs belong to the application again when the call returns. Ranks come to each call at different times.
Status reuse_of_buffers(Communicator& communicator, uint64_t seed) {
  uint64_t turn = 0;
  for (const size_t count : {size_t{1}, size_t{500}, kSingleCopyCount}) {
    for (const check::Problem& problem : problems(communicator, ReduceOp::kSum, count, seed + count)) {
      for (int round = 0; round < 5; ++round) {
        if (draw(seed, communicator.rank(), 0, turn++) % 3 == 0) std::this_thread::yield();
        TUTTI_TRY(call_and_overwrite(communicator, problem));
      }
    }
  }
  return {};
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<std::pair<std::string, std::string>> single_copies = {
      {"shm.single_copy_min", std::to_string(kSingleCopyBytes)}};
  static const std::vector<Scenario> all = {{"all_to_all_v with random counts", uneven_all_to_all},
                                            {"random messages in a group", random_messages},
                                            {"a group within a group", nested_groups},
                                            {"split", split},
                                            {"communicators used by several threads", threads},
                                            {"one group over several communicators", group},
                                            {"large pre-multiplied sums", large_pre_multiplied_sums, single_copies},
                                            {"reuse of buffers right after a call", reuse_of_buffers, single_copies}};
  return all;
}

Status run_scenario(const Scenario& scenario, const Setting& setting, int rank_count, uint64_t seed) {
  TUTTI_ASSIGN(const UniqueId id, UniqueId::create());
  std::vector<Status> statuses(static_cast<size_t>(rank_count));
  Team(rank_count).run([&](int rank) {
    const auto part = [&]() -> Status {
      Options chosen = options(setting, rank, rank_count);
      chosen.settings.insert(chosen.settings.end(), scenario.settings.begin(), scenario.settings.end());
      TUTTI_ASSIGN(auto communicator, Communicator::create(id, rank, rank_count, chosen));
      TUTTI_TRY(scenario.part(communicator, seed));
      return communicator.barrier();
    };
    statuses[static_cast<size_t>(rank)] = part().with_context(fmt::format("rank {}", rank));
  });
  for (const Status& status : statuses) TUTTI_TRY(status);
  return {};
}

}  // namespace tutti::matrix
