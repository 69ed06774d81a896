// SPDX-License-Identifier: Apache-2.0
// Rules of protocols about the results of calls on GPUs. Two ranks are threads, and may share a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tools/check/compare.h"
#include "tools/check/random_input.h"
#include "tools/launch.h"
#include "tools/plugin_test/gpu.h"
#include "tools/plugin_test/host_ranks.h"
#include "tools/plugin_test/rule.h"
#include "tools/plugin_test/trial.h"
#include "tools/session.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr int kRanks = 2;
constexpr size_t kGuard = 256;  // bytes around an output, which no call writes
constexpr size_t kLargest = size_t{1} << 20;
constexpr size_t kBufferBytes = 4 * kRanks * kLargest * sizeof(double);
constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                     Collective::kBroadcast, Collective::kAllToAll};

struct GpuCall {
  check::Problem problem;
  bool in_place = false;
  size_t input_offset = 0, output_offset = 0;  // elements
};

std::string to_string(const GpuCall& call) {
  const check::Problem& problem = call.problem;
  return fmt::format("{} of {} × {}, {}{}, offsets {} and {}, seed {}", tutti::to_string(problem.collective),
                     problem.count, tutti::to_string(problem.type), tutti::to_string(problem.op),
                     call.in_place ? ", in place" : "", call.input_offset, call.output_offset, problem.seed);
}

GpuCall make_call(Trial& trial, Collective collective, DataType type, ReduceOp op, size_t count) {
  GpuCall call;
  call.problem = {
      .collective = collective, .type = type, .op = op, .rank_count = kRanks, .count = count, .seed = trial.random()()};
  if (!check::reduces(collective)) call.problem.op = ReduceOp::kSum;
  return call;
}

std::vector<GpuCall> all_calls(Trial& trial) {
  std::vector<GpuCall> calls;
  for (uint32_t type = 0; type < kDataTypeCount; ++type) {
    for (uint32_t op = 0; op < kReduceOpCount; ++op) {
      const auto collective = op % 2 == 0 ? Collective::kAllReduce : Collective::kReduceScatter;
      calls.push_back(make_call(trial, collective, static_cast<DataType>(type), static_cast<ReduceOp>(op), 1003));
    }
    for (const auto& [input, output] : {std::pair<size_t, size_t>{1, 0}, {3, 5}, {0, 7}, {15, 15}}) {
      GpuCall call = make_call(trial, kCollectives[(type + input) % kCollectives.size()], static_cast<DataType>(type),
                               ReduceOp::kSum, 517);
      call.input_offset = input;
      call.output_offset = output;
      calls.push_back(call);
    }
  }
  for (const Collective collective : kCollectives) {
    for (const size_t count :
         {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{65}, size_t{4097}, size_t{100'003}, kLargest}) {
      for (const DataType type : {DataType::kInt8, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
        calls.push_back(make_call(trial, collective, type, ReduceOp::kSum, count));
        calls.push_back(calls.back());
        calls.back().in_place = check::in_place(calls.back().problem, 0).has_value();
      }
    }
  }
  return calls;
}

/// The calls of all ranks, and the first failure of a rank.
class GpuTrial {
 public:
  explicit GpuTrial(Trial& trial) : trial_(trial), calls_(all_calls(trial)), properties_(properties_of(trial)) {}

  /// Violates the rule if a call fails or gives a wrong result. Skips it if no call can run.
  void run() {
    const auto id = UniqueId::create();
    if (!id.ok()) trial_.skip("no id for the ranks: " + id.status().to_string());
    {
      std::vector<std::jthread> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        ranks.emplace_back([&, rank] {
          if (const Status status = run_rank(*id, rank); !status.ok()) fail(status.to_string());
        });
      }
    }
    if (!failure_.empty()) trial_.violate(failure_);
    if (!has_run_) trial_.skip("no call can run on two GPU ranks: " + declined_);
  }

 private:
  Options options() const {
    Options options{trial_.request().config_file, split_settings(trial_.request().settings), "the kit"};
    const std::string& name = trial_.plugin().name();
    options.settings.emplace_back("plugins.protocol", fmt::format("[{}]", trial_.plugin().image().file().string()));
    options.settings.emplace_back("protocol", name);
    options.settings.emplace_back("device", "cuda");
    options.settings.emplace_back("timeouts.operation", "30s");
    return options;
  }

  Status run_rank(const UniqueId& id, int rank) {
    TUTTI_ASSIGN(Gpu gpu, Gpu::open(rank, kBufferBytes));
    TUTTI_ASSIGN(Communicator communicator, Communicator::create(id, rank, kRanks, options()));
    Registration registration;
    if (properties_.needs_registered != 0) {
      TUTTI_ASSIGN(registration, communicator.register_buffer(gpu.memory(), gpu.size()));
    }
    for (const GpuCall& call : calls_) {
      const check::Problem& problem = call.problem;
      const auto choice = communicator.choose(problem.collective, problem.count, problem.type, problem.op,
                                              properties_.needs_registered != 0);
      if (choice.status().code() == Code::kUnsupported) {
        decline(choice.status().to_string());
        continue;
      }
      const Status status = choice.ok() ? run_call(communicator, gpu, call, rank) : choice.status();
      if (status.ok()) continue;
      communicator.abort("a call of the kit failed");
      return status.with_context(fmt::format("rank {}, {}", rank, to_string(call)));
    }
    return {};
  }

  Status run_call(Communicator& communicator, Gpu& gpu, const GpuCall& call, int rank) {
    const check::Problem& problem = call.problem;
    const size_t element = size_of(problem.type);
    const auto place = call.in_place ? check::in_place(problem, rank) : std::nullopt;
    const size_t input_bytes = check::input_elements(problem, rank) * element;
    const size_t output_bytes = check::output_elements(problem, rank) * element;
    const size_t input = kGuard + (place ? place->input : call.input_offset) * element;
    // Out of place, the output lies behind the largest input of a rank: at the same offset on all ranks, as registered
    // outputs must.
    size_t largest = 0;
    for (int peer = 0; peer < kRanks; ++peer) largest = std::max(largest, check::input_elements(problem, peer));
    const size_t output_base = place ? kGuard : (input + largest * element) / kGuard * kGuard + 2 * kGuard;
    const size_t output = output_base + (place ? place->output : call.output_offset) * element;

    std::vector<std::byte> image(std::max(input + input_bytes, output + output_bytes) + kGuard);
    check::poison(image.data(), image.size());
    check::fill_input(problem, rank, 0, check::input_elements(problem, rank), image.data() + input);
    TUTTI_TRY(gpu.upload(image, 0));
    const check::Call made(problem, rank);
    TUTTI_TRY(made(communicator, gpu.memory() + input, gpu.memory() + output, gpu.stream()));
    TUTTI_TRY(gpu.wait());
    TUTTI_TRY(communicator.async_error());
    std::vector<std::byte> after(image.size());
    TUTTI_TRY(gpu.download(after, 0));
    has_run_ = true;
    const auto wrong = check::compare(problem, check::Reference::for_rank(problem, rank), rank, after.data() + output);
    if (wrong.wrong > 0) return {Code::kInternal, wrong.first};
    // The output and an input in place are the only memory that changes.
    std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(output), output_bytes,
                image.begin() + static_cast<std::ptrdiff_t>(output));
    if (place) {
      std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(input), input_bytes,
                  image.begin() + static_cast<std::ptrdiff_t>(input));
    }
    const auto changed = std::ranges::mismatch(image, after).in1;
    if (changed == image.end()) return {};
    return {Code::kInternal, fmt::format("byte {} from the output on is written",
                                         changed - image.begin() - static_cast<std::ptrdiff_t>(output))};
  }

  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
  }
  void decline(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (declined_.empty()) declined_ = text;
  }

  Trial& trial_;
  const std::vector<GpuCall> calls_;
  const tutti_protocol_properties properties_;
  std::mutex mutex_;  // guards the texts
  std::string failure_, declined_;
  std::atomic<bool> has_run_{false};  // relaxed: read after the threads have ended
};

void test_gpus(Trial& trial) {
  if ((properties_of(trial).devices & TUTTI_DEVICE_CUDA) == 0) trial.skip("the protocol does not run on GPUs");
  prepare_for_shared_gpus();
  if (gpu_count() == 0) trial.skip("there is no GPU, or this build has no CUDA");
  GpuTrial(trial).run();
}

constexpr TrialRule kRules[] = {
    {{.number = "PRO-18",
      .name = "gpus",
      .sentence = "On GPUs, calls of each type, operation and size give the right result, and nothing else is written.",
      .seconds = 240},
     test_gpus},
};

}  // namespace

std::span<const TrialRule> gpu_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
