// SPDX-License-Identifier: Apache-2.0
// Rules of tuners.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "tools/plugin_test/jobs.h"
#include "tools/plugin_test/rule.h"
#include "tools/plugin_test/trial.h"
#include "tutti/sdk/tuner.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr double kLargestFall = 0.5;  // of a time when the size doubles
constexpr const char* kHostsReason = "the host excludes it";

tutti_str borrow(std::string_view text) {
  return {text.data(), text.size()};
}

struct Outline {
  std::string_view algorithm, variant, protocol;
  double hops_per_rank, hops;  // hops_per_rank × (ranks - 1) + hops × ⌈log2 ranks⌉
  double wire;                 // × (ranks - 1) / ranks
  uint32_t max_channels;
};
constexpr std::array kOutlines = std::to_array<Outline>({{"ring", "", "simple", 2, 0, 2, 16},
                                                         {"ring", "", "ll", 2, 0, 2, 4},
                                                         {"tree", "", "simple", 0, 2, 2, 8},
                                                         {"direct", "one-shot", "ll", 0, 1, 8, 1},
                                                         {"direct", "two-shot", "simple", 0, 2, 2, 32}});

/// The candidates of a call as the host lists them. The host excludes the last candidate.
std::vector<tutti_candidate> candidates(const Job& job) {
  std::vector<tutti_candidate> list;
  const uint32_t ranks = job.rank_count();
  const uint32_t link = job.node_count > 1 ? TUTTI_LINK_NETWORK : job.on_gpus ? TUTTI_LINK_P2P : TUTTI_LINK_SHM;
  for (const Outline& outline : kOutlines) {
    tutti_candidate one{};
    one.struct_size = sizeof one;
    one.max_channels = outline.max_channels;
    one.algorithm = borrow(outline.algorithm);
    one.variant = borrow(outline.variant);
    one.protocol = borrow(outline.protocol);
    const double hops = outline.hops_per_rank * (ranks - 1) + outline.hops * std::bit_width(ranks - 1);
    one.hops[link] = static_cast<uint32_t>(hops);
    one.wire[link] = outline.wire * (ranks - 1) / ranks;
    one.memory = 4;
    for (uint32_t l = 0; l < TUTTI_LINK_COUNT; ++l) {
      one.protocol_efficiency[l] = outline.protocol == "ll" ? 0.5 : 1;
      one.protocol_latency_us[l] = outline.protocol == "ll" ? 0 : 0.2;
      one.channel_gbs[l] = outline.protocol == "ll" ? 0 : 7;
    }
    list.push_back(one);
  }
  list.push_back(list.front());
  list.back().predicted_us = -1;
  list.back().reason = borrow(kHostsReason);
  return list;
}

tutti_call call_of(Collective collective, DataType type, ReduceOp op, uint64_t bytes, const Job& job) {
  const bool blocks = collective != Collective::kAllReduce && collective != Collective::kBroadcast &&
                      collective != Collective::kReduce && collective != Collective::kSendRecv;
  return {sizeof(tutti_call),
          static_cast<uint32_t>(collective),
          static_cast<uint32_t>(type),
          static_cast<uint32_t>(op),
          bytes,
          blocks ? job.rank_count() : 1,
          0,
          0};
}

std::string text_of(const tutti_call& call, const Job& job) {
  return fmt::format("{} {} {} of {} × {} bytes, {}", to_string(static_cast<Collective>(call.collective)),
                     to_string(static_cast<DataType>(call.data_type)), to_string(static_cast<ReduceOp>(call.reduce_op)),
                     call.blocks, call.block_bytes, job.name());
}

std::string text_of(const tutti_candidate& one) {
  const auto text = [](tutti_str part) { return std::string(part.data, part.size); };
  return fmt::format("{}{}{} × {}", text(one.algorithm), one.variant.size > 0 ? "/" : "", text(one.variant),
                     text(one.protocol));
}

/// A tuner's instance for one topology.
class Tuner {
 public:
  Tuner(Trial& trial, const Job& job) : trial_(trial), job_(job) {
    const tutti_topology topology = job.topology();
    plugin::take_failure_text();  // discards the text of an earlier call
    const int32_t code = trial.call("create", [&] { return ops().create(trial.self(), &topology, &instance_); });
    if (code == TUTTI_OK) return;
    trial.violate_failure("TUN-5", fmt::format("create for {}", job.name()),
                          Status(static_cast<Code>(code), plugin::take_failure_text()));
  }
  ~Tuner() { ops().destroy(instance_); }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  int32_t ask(const tutti_call& call, std::vector<tutti_candidate>& list) const {
    const auto pointers = sdk::pointers_to(list);
    return ops().choose(instance_, &call, pointers.data(), static_cast<uint32_t>(pointers.size()));
  }
  std::vector<tutti_candidate> choose(const tutti_call& call) {
    std::vector<tutti_candidate> list = candidates(job_);
    plugin::take_failure_text();  // discards the text of an earlier call
    const int32_t code = trial_.call("choose", [&] { return ask(call, list); });
    if (code == TUTTI_OK) return list;
    trial_.violate_failure("TUN-5", fmt::format("choose for {}", text_of(call, job_)),
                           Status(static_cast<Code>(code), plugin::take_failure_text()));
  }

 private:
  const tutti_tuner_ops& ops() const { return trial_.ops<tutti_tuner_ops>(); }
  Trial& trial_;
  const Job& job_;
  void* instance_ = nullptr;
};

constexpr std::array kSizes = std::to_array<uint64_t>(
    {0, 1, 3, 8, 1000, 4096, 65536, 65537, 1 << 20, uint64_t{100} << 20, uint64_t{1} << 30, uint64_t{1} << 40});

/// Every call shape: all collectives and sizes, and in turn all types and operations.
std::vector<tutti_call> all_calls(const Job& job) {
  std::vector<tutti_call> calls;
  for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
    for (uint32_t type = 0; type < kDataTypeCount; ++type) {
      for (uint32_t op = 0; op < kReduceOpCount; ++op) {
        for (const uint64_t bytes : kSizes) {
          calls.push_back(call_of(static_cast<Collective>(collective), static_cast<DataType>(type),
                                  static_cast<ReduceOp>(op), bytes, job));
        }
      }
    }
  }
  return calls;
}

using Visit = std::function<void(const Job&, const tutti_call&, const std::vector<tutti_candidate>&)>;
void for_each_call(Trial& trial, const Visit& visit) {
  for (const Job& job : all_jobs()) {
    Tuner tuner(trial, job);
    for (const tutti_call& call : all_calls(job)) visit(job, call, tuner.choose(call));
  }
}

void test_calls(Trial& trial) {
  for_each_call(trial, [](const Job&, const tutti_call&, const std::vector<tutti_candidate>&) {});
}

void test_outputs(Trial& trial) {
  for_each_call(trial, [&](const Job& job, const tutti_call& call, const std::vector<tutti_candidate>& list) {
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      const tutti_candidate& one = list[i];
      const auto wrong = [&](const std::string& what) {
        trial.violate(fmt::format("{}, candidate {}: {}", text_of(call, job), text_of(one), what));
      };
      if (one.predicted_us < 0 && one.reason.size == 0) wrong("excluded without a reason");
      if (one.predicted_us >= 0 && (one.channels == 0 || one.channels > one.max_channels)) {
        wrong(fmt::format("{} channels; 1 to {} are allowed", one.channels, one.max_channels));
      }
    }
  });
}

void test_finite(Trial& trial) {
  for_each_call(trial, [&](const Job& job, const tutti_call& call, const std::vector<tutti_candidate>& list) {
    for (const tutti_candidate& one : list) {
      if (std::isfinite(one.predicted_us)) continue;
      trial.violate(
          fmt::format("{}, candidate {}: the time is {} µs", text_of(call, job), text_of(one), one.predicted_us));
    }
  });
}

/// A candidate without its outputs.
tutti_candidate inputs_of(tutti_candidate one) {
  one.predicted_us = 0;
  one.channels = 0;
  one.reason = {};
  return one;
}

void test_inputs(Trial& trial) {
  for_each_call(trial, [&](const Job& job, const tutti_call& call, const std::vector<tutti_candidate>& list) {
    const std::vector<tutti_candidate> given = candidates(job);
    for (size_t i = 0; i < list.size(); ++i) {
      const bool excluded = given[i].predicted_us < 0;
      const tutti_candidate before = excluded ? given[i] : inputs_of(given[i]);
      const tutti_candidate after = excluded ? list[i] : inputs_of(list[i]);
      if (std::memcmp(&before, &after, sizeof before) == 0) continue;
      trial.violate(fmt::format("{}, candidate {}: {}", text_of(call, job), text_of(given[i]),
                                excluded ? "the host excluded it, and choose changes it" : "choose changes an input"));
    }
  });
}

void test_monotone(Trial& trial) {
  constexpr uint64_t kLargest = uint64_t{1} << 36;
  for (const Job& job : all_jobs()) {
    Tuner tuner(trial, job);
    for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
      std::vector<tutti_candidate> before;
      for (uint64_t bytes = 1; bytes <= kLargest; bytes *= 2) {
        const tutti_call call =
            call_of(static_cast<Collective>(collective), DataType::kFloat32, ReduceOp::kSum, bytes, job);
        std::vector<tutti_candidate> now = tuner.choose(call);
        for (size_t i = 0; i < before.size(); ++i) {
          if (before[i].predicted_us < 0 || now[i].predicted_us < 0) continue;
          if (now[i].predicted_us >= before[i].predicted_us * kLargestFall) continue;
          trial.violate(fmt::format("{}, candidate {}: {} µs, but {} µs for half of the bytes", text_of(call, job),
                                    text_of(now[i]), now[i].predicted_us, before[i].predicted_us));
        }
        before = std::move(now);
      }
    }
  }
}

/// The outputs of an answer; equal texts mean equal answers.
std::string outputs(const std::vector<tutti_candidate>& list) {
  std::string text;
  for (const tutti_candidate& one : list) {
    text += fmt::format(" {:a}×{}", one.predicted_us, one.predicted_us < 0 ? 0 : one.channels);
  }
  return text;
}

void test_repeat(Trial& trial) {
  for (const Job& job : few_jobs()) {
    Tuner tuner(trial, job);
    std::vector<std::pair<tutti_call, std::string>> asked;
    for (const tutti_call& call : all_calls(job)) asked.emplace_back(call, outputs(tuner.choose(call)));
    std::shuffle(asked.begin(), asked.end(), trial.random());
    for (const auto& [call, answer] : asked) {
      const std::string again = outputs(tuner.choose(call));
      if (again == answer) continue;
      trial.violate(fmt::format("{}: at first{}, and later{}", text_of(call, job), answer, again));
    }
  }
}

void test_ranks(Trial& trial) {
  for (const Job& job : few_jobs()) {
    Tuner first(trial, job);
    for (uint32_t rank = 1; rank < std::max(2u, job.rank_count()); ++rank) {
      Tuner own(trial, job);
      for (const tutti_call& call : all_calls(job)) {
        const std::string one = outputs(first.choose(call)), other = outputs(own.choose(call));
        if (one == other) continue;
        trial.violate(fmt::format("{}: rank 0 gets{}, and rank {} gets{}", text_of(call, job), one, rank, other));
      }
    }
  }
}

void test_processes(Trial& trial) {
  for (const Job& job : few_jobs()) {
    Tuner tuner(trial, job);
    for (const tutti_call& call : all_calls(job)) {
      trial.answer(text_of(call, job) + ":" + outputs(tuner.choose(call)));
    }
  }
}

void test_threads(Trial& trial) {
  constexpr int kThreads = 4, kRounds = 3;
  for (const Job& job : few_jobs()) {
    Tuner tuner(trial, job);
    const std::vector<tutti_call> calls = all_calls(job);
    std::vector<std::string> answers;
    for (const tutti_call& call : calls) answers.push_back(outputs(tuner.choose(call)));
    std::array<const tutti_call*, kThreads> wrong{};  // each thread writes its own
    trial.call("choose", [&] {
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < kRounds * calls.size(); ++i) {
            const size_t at = (i + t * 101) % calls.size();
            std::vector<tutti_candidate> list = candidates(job);
            if (tuner.ask(calls[at], list) != TUTTI_OK || outputs(list) != answers[at]) wrong[t] = &calls[at];
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    for (const tutti_call* const call : wrong) {
      if (call == nullptr) continue;
      trial.violate(
          fmt::format("{}: if {} threads ask at the same time, the answer differs", text_of(*call, job), kThreads));
    }
  }
}

constexpr TrialRule kRules[] = {
    {{"TUN-1", "returns", "Every entry returns. An entry that has not returned for 10 s violates this rule."}},
    {{"TUN-2", "throws", "No exception leaves an entry (PLG-4)."}},
    {{"TUN-3", "reasons", "An entry that fails gives its reason to host->fail (PLG-14)."}},
    {{"TUN-4", "crashes", "No entry ends the process."}},
    {{.number = "TUN-5",
      .name = "calls",
      .sentence = "create takes every topology, and choose every call: collective, type, operation, size and ranks.",
      .seconds = 120},
     test_calls},
    {{.number = "TUN-6",
      .name = "outputs",
      .sentence = "A candidate gets a time and 1 to max_channels channels, or a negative time and a reason.",
      .seconds = 120},
     test_outputs},
    {{.number = "TUN-7", .name = "finite", .sentence = "Times are finite.", .seconds = 120}, test_finite},
    {{.number = "TUN-8",
      .name = "inputs",
      .sentence = "choose changes only the outputs of candidates, and nothing of those that the host excluded.",
      .seconds = 120},
     test_inputs},
    {{.number = "TUN-9",
      .name = "monotone",
      .sentence = "If the size doubles, the time of a candidate does not fall below half.",
      .seconds = 120},
     test_monotone},
    {{.number = "TUN-10",
      .name = "repeat",
      .sentence = "Equal calls get equal answers, whatever was asked before.",
      .seconds = 120},
     test_repeat},
    {{.number = "TUN-11",
      .name = "ranks",
      .sentence = "The instance of every rank gives the same answers.",
      .seconds = 120},
     test_ranks},
    {{.number = "TUN-12",
      .name = "processes",
      .sentence = "Every process gives the same answers.",
      .seconds = 120,
      .needs_processes = true},
     test_processes},
    {{.number = "TUN-13",
      .name = "threads",
      .sentence = "Threads that ask at the same time get the same answers.",
      .seconds = 120},
     test_threads},
};

}  // namespace

std::span<const TrialRule> tuner_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
