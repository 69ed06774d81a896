// SPDX-License-Identifier: Apache-2.0
// Rules of protocols about the results of calls on the host.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tools/check/random_input.h"
#include "tools/plugin_test/host_ranks.h"
#include "tools/plugin_test/rule.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint32_t kRanks = 3;

HostCall make_call(Trial& trial, Schedule schedule, DataType type, ReduceOp op, size_t count, uint32_t ranks = kRanks) {
  HostCall call;
  call.schedule = schedule;
  call.problem.collective = schedule == Schedule::kGather ? Collective::kAllGather : Collective::kAllReduce;
  call.problem.type = type;
  if (check::reduces(call.problem.collective)) call.problem.op = op;
  call.problem.rank_count = static_cast<int>(ranks);
  call.problem.count = count;
  call.problem.seed = trial.random()();
  return call;
}

constexpr std::array kSchedules = {Schedule::kRing, Schedule::kOneShot, Schedule::kTwoShot, Schedule::kGather};

/// Violates the rule if the result is wrong.
void expect_right(Trial& trial, HostRanks& ranks, const HostCall& call, uint32_t link) {
  const HostOutcome outcome = ranks.run(call);
  if (!outcome.wrong.empty()) trial.violate(fmt::format("over {}, {}", link_name(link), outcome.wrong));
}

void test_types(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (uint32_t type = 0; type < kDataTypeCount; ++type) {
      for (uint32_t op = 0; op < kReduceOpCount; ++op) {
        for (const Schedule schedule : kSchedules) {
          expect_right(trial, ranks,
                       make_call(trial, schedule, static_cast<DataType>(type), static_cast<ReduceOp>(op), 1003), link);
        }
      }
    }
  }
}

void test_sizes(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{63}, size_t{64},
                               size_t{65}, size_t{1000}, size_t{4097}, size_t{12345}}) {
      for (const DataType type : {DataType::kInt8, DataType::kFloat16, DataType::kFloat32, DataType::kFloat64}) {
        for (const Schedule schedule : kSchedules) {
          expect_right(trial, ranks, make_call(trial, schedule, type, ReduceOp::kSum, count), link);
        }
      }
    }
  }
}

void test_large(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks small(trial, link, kRanks);
    HostRanks usual(trial, link, kRanks, 8, 128 << 10);
    for (const Schedule schedule : kSchedules) {
      expect_right(trial, small, make_call(trial, schedule, DataType::kFloat32, ReduceOp::kSum, 100'003), link);
      expect_right(trial, usual, make_call(trial, schedule, DataType::kFloat32, ReduceOp::kSum, 1'000'003), link);
    }
  }
}

void test_unaligned(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (uint32_t type = 0; type < kDataTypeCount; ++type) {
      const size_t element = size_of(static_cast<DataType>(type));
      for (size_t input = 0; input < 64; input += std::max<size_t>(element, 3) / element * element) {
        for (const size_t output : {size_t{0}, element, 7 * element, 64 - element}) {
          HostCall call = make_call(trial, kSchedules[input / element % kSchedules.size()], static_cast<DataType>(type),
                                    ReduceOp::kSum, 517);
          call.input_offset = input;
          call.output_offset = output % 64;
          expect_right(trial, ranks, call, link);
        }
      }
    }
  }
}

void test_in_place(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (const Schedule schedule : {Schedule::kRing, Schedule::kOneShot, Schedule::kTwoShot}) {
      for (const size_t count : {size_t{1}, size_t{100}, size_t{5003}}) {
        for (const bool direct : {false, true}) {
          HostCall call = make_call(trial, schedule, DataType::kFloat32, ReduceOp::kSum, count);
          call.in_place = true;
          call.direct = direct;
          expect_right(trial, ranks, call, link);
        }
      }
    }
  }
}

void test_direct(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (const Schedule schedule : kSchedules) {
      for (const size_t count : {size_t{1}, size_t{100}, size_t{5003}}) {
        HostCall call = make_call(trial, schedule, DataType::kFloat32, ReduceOp::kSum, count);
        call.direct = true;
        expect_right(trial, ranks, call, link);
      }
    }
  }
}

void test_bounds(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, kRanks);
    for (const DataType type : {DataType::kInt8, DataType::kFloat16, DataType::kFloat32, DataType::kFloat64}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{61}, size_t{1001}}) {
        for (const Schedule schedule : kSchedules) {
          HostCall call = make_call(trial, schedule, type, ReduceOp::kSum, count);
          call.output_offset = size_of(type);
          const HostOutcome outcome = ranks.run(call);
          if (!outcome.beyond.empty()) trial.violate(fmt::format("over {}, {}", link_name(link), outcome.beyond));
        }
      }
    }
  }
}

/// The sum in ascending order of ranks, rounded after each addition, as a step that folds must give it.
std::vector<float> ascending_sum(const check::Problem& problem) {
  std::vector<float> sum(problem.count), term(problem.count);
  for (int rank = 0; rank < problem.rank_count; ++rank) {
    check::fill_input(problem, rank, 0, problem.count, term.data());
    for (size_t i = 0; i < problem.count; ++i) sum[i] = rank == 0 ? term[i] : sum[i] + term[i];
  }
  return sum;
}

void test_order(Trial& trial) {
  constexpr uint32_t kMany = 9;
  const uint32_t most = properties_of(trial).max_fan;
  const uint32_t count = std::min(kMany, most == UINT32_MAX ? kMany : most + 1);
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, count);
    const HostCall call = make_call(trial, Schedule::kOneShot, DataType::kFloat32, ReduceOp::kSum, 2001, count);
    const HostOutcome outcome = ranks.run(call);
    const std::vector<float> expected = ascending_sum(call.problem);
    for (uint32_t rank = 0; rank < count; ++rank) {
      const auto* const got = reinterpret_cast<const float*>(outcome.outputs[rank].data());
      for (size_t i = 0; i < expected.size(); ++i) {
        if (std::memcmp(&got[i], &expected[i], sizeof(float)) == 0) continue;
        trial.violate(
            fmt::format("over {}, {}: rank {}, element {} is {:a}; the sum of {} ranks in ascending order is "
                        "{:a}",
                        link_name(link), to_string(call), rank, i, got[i], count, expected[i]));
      }
    }
  }
}

constexpr TrialRule kRules[] = {
    {{.number = "PRO-7",
      .name = "types",
      .sentence = "run ends, and each type with each operation gives the result of the reference.",
      .seconds = 120},
     test_types},
    {{.number = "PRO-8",
      .name = "sizes",
      .sentence = "Calls of 0, 1 and any number of elements give the right result.",
      .seconds = 120},
     test_sizes},
    {{.number = "PRO-9",
      .name = "large",
      .sentence = "Calls of many loops, slices and slots give the right result.",
      .seconds = 120},
     test_large},
    {{.number = "PRO-10",
      .name = "unaligned",
      .sentence = "Buffers may begin at any multiple of the size of an element.",
      .seconds = 120},
     test_unaligned},
    {{.number = "PRO-11", .name = "in-place", .sentence = "Input and output may be the same memory.", .seconds = 120},
     test_in_place},
    {{.number = "PRO-12",
      .name = "bounds",
      .sentence = "run writes nothing beside the output, and does not change the input.",
      .seconds = 120},
     test_bounds},
    {{.number = "PRO-13",
      .name = "order",
      .sentence = "A step folds in ascending order of ranks, so that all ranks get the same bits.",
      .seconds = 120},
     test_order},
};

constexpr TrialRule kDirect[] = {
    {{.number = "PRO-17",
      .name = "direct",
      .sentence = "If direct_minimum allows it, receivers may read the sender's memory, and results stay right.",
      .seconds = 120},
     test_direct},
};

}  // namespace

std::span<const TrialRule> result_rules() {
  return kRules;
}
std::span<const TrialRule> direct_rules() {
  return kDirect;
}

}  // namespace tutti::tools::plugin_test
