// SPDX-License-Identifier: Apache-2.0
// gpu_stress_test: thousands of large calls with new data each, checked on the GPU. It finds failures that occur once
// in a thousand calls; tests that copy every result to the host make fewer calls. Ranks are threads.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "integration/matrix/gpu.h"
#include "integration/matrix/team.h"
#include "integration/stress/words.h"

namespace tutti::stress {
namespace {

constexpr int kSkipped = 77;            // as CTest's SKIP_RETURN_CODE
constexpr uint32_t kCallsPerLook = 64;  // at the GPU

const std::map<std::string, Collective> kCollectives = {{"all_reduce", Collective::kAllReduce},
                                                        {"all_gather", Collective::kAllGather},
                                                        {"reduce_scatter", Collective::kReduceScatter},
                                                        {"all_to_all", Collective::kAllToAll}};

struct Wanted {
  int ranks = 0;  ///< 0: one per GPU
  uint32_t calls = 1000;
  size_t bytes = size_t{8} << 20;  ///< size of the larger buffer
  std::vector<Collective> collectives;
  std::vector<std::pair<std::string, std::string>> settings;
  bool registered = false;
};

Status check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return {Code::kDevice, fmt::format("{}: {}", what, cudaGetErrorString(error))};
}

Status call(Communicator& communicator, const Round& round, const uint32_t* input, uint32_t* output, Stream stream) {
  constexpr DataType kType = DataType::kUint32;
  switch (round.collective) {
    case Collective::kAllReduce:
      return communicator.all_reduce(input, output, round.count, kType, ReduceOp::kSum, stream);
    case Collective::kReduceScatter:
      return communicator.reduce_scatter(input, output, round.count, kType, ReduceOp::kSum, stream);
    case Collective::kAllGather:
      return communicator.all_gather(input, output, round.count, kType, stream);
    default:
      return communicator.all_to_all(input, output, round.count, kType, stream);
  }
}

/// Sizes vary a little: ends of messages fall on all places.
Round draw(const Wanted& wanted, uint32_t number, int rank) {
  Round round;
  round.collective = wanted.collectives[number / kCallsPerLook % wanted.collectives.size()];
  round.call = number;
  round.rank = static_cast<uint32_t>(rank);
  round.rank_count = static_cast<uint32_t>(wanted.ranks);
  const size_t words = wanted.bytes / sizeof(uint32_t) - number % 61;
  round.count = round.collective == Collective::kAllReduce ? words : words / round.rank_count;
  return round;
}

/// Every other call that can be.
uint32_t* in_place(const Round& round, uint32_t* output) {
  if (round.call % 2 == 0) return nullptr;
  if (round.collective == Collective::kAllReduce) return output;
  return round.collective == Collective::kAllGather ? output + round.rank * round.count : nullptr;
}

/// Adds to the checked words, and to the words that were due.
Status play(const Wanted& wanted, const UniqueId& id, int rank, std::atomic<uint64_t>& checked,
            std::atomic<uint64_t>& wrong, std::atomic<uint64_t>& due) {
  matrix::use_gpu(rank);
  Options options;
  options.settings = wanted.settings;
  options.settings.emplace_back("device", "cuda");
  cudaStream_t stream = nullptr;
  void* buffers = nullptr;
  void* counters = nullptr;
  TUTTI_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"));
  TUTTI_TRY(check(cudaMalloc(&buffers, 2 * wanted.bytes), "buffers"));
  TUTTI_TRY(check(cudaMalloc(&counters, sizeof(Outcome)), "counters"));
  TUTTI_TRY(check(cudaMemsetAsync(counters, 0, sizeof(Outcome), stream), "counters"));
  // Ranks may share a GPU. The first use of a stream waits for kernels, so it is before the first call of any rank.
  TUTTI_TRY(check(cudaStreamSynchronize(stream), "counters"));
  TUTTI_ASSIGN(Communicator communicator, Communicator::create(id, rank, wanted.ranks, options));
  std::optional<Registration> registration;
  if (wanted.registered) {
    TUTTI_ASSIGN(registration, communicator.register_buffer(buffers, 2 * wanted.bytes));
    if (!registration->direct()) return {Code::kUnsupported, "the buffers are not reached by all ranks"};
  }
  auto* const outcome = static_cast<Outcome*>(counters);
  auto* const first = static_cast<uint32_t*>(buffers);
  uint32_t* const output = first + wanted.bytes / sizeof(uint32_t);
  for (uint32_t number = 0; number < wanted.calls; ++number) {
    const Round round = draw(wanted, number, rank);
    uint32_t* const inside = in_place(round, output);
    uint32_t* const input = inside != nullptr ? inside : first;
    TUTTI_TRY(fill_input(input, round, stream));
    TUTTI_TRY(call(communicator, round, input, output, stream));
    TUTTI_TRY(check_output(output, round, outcome, stream));
    due += output_words(round);
    if (number % kCallsPerLook != kCallsPerLook - 1 && number + 1 != wanted.calls) continue;
    TUTTI_TRY(check(cudaStreamSynchronize(stream), "calls"));
    TUTTI_TRY(communicator.async_error());
  }
  Outcome seen;
  TUTTI_TRY(check(cudaMemcpy(&seen, outcome, sizeof seen, cudaMemcpyDeviceToHost), "the counters"));
  checked += seen.checked;
  wrong += seen.wrong;
  registration.reset();
  cudaFree(counters);
  cudaFree(buffers);
  cudaStreamDestroy(stream);
  return {};
}

int run(Wanted wanted) {
  if (matrix::gpu_count() == 0) {
    fmt::print("skipped: no GPU\n");
    return kSkipped;
  }
  wanted.bytes = std::max(wanted.bytes / sizeof(uint32_t) * sizeof(uint32_t), size_t{4096});
  if (wanted.ranks == 0) wanted.ranks = std::max(2, matrix::gpu_count());
  const Result<UniqueId> id = UniqueId::create("=lo");
  if (!id.ok()) {
    fmt::print("{}\n", id.status().to_string());
    return 1;
  }
  std::atomic<uint64_t> checked = 0;
  std::atomic<uint64_t> wrong = 0;
  std::atomic<uint64_t> due = 0;
  std::vector<Status> statuses(static_cast<size_t>(wanted.ranks));
  matrix::Team(wanted.ranks).run([&](int rank) {
    statuses[static_cast<size_t>(rank)] = play(wanted, *id, rank, checked, wrong, due);
  });
  bool failed = wrong > 0 || checked != due;
  for (const Status& status : statuses) {
    if (status.ok()) continue;
    failed = true;
    fmt::print("{}\n", status.to_string());
  }
  fmt::print("{}: {} calls of {} bytes on {} ranks, {} of {} words checked, {} wrong\n", failed ? "FAILED" : "passed",
             wanted.calls, wanted.bytes, wanted.ranks, checked.load(), due.load(), wrong.load());
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace tutti::stress

int main(int argc, char** argv) {
  tutti::stress::Wanted wanted;
  std::vector<std::string> settings;
  std::vector<std::string> collectives;
  CLI::App app("Thousands of large calls with new data each, checked on the GPU");
  app.add_option("--ranks", wanted.ranks, "Ranks, on GPUs in turn (one per GPU)");
  app.add_option("--calls", wanted.calls, "Calls (1000)");
  app.add_option("--bytes", wanted.bytes, "Of the larger buffer (8 MiB)")->transform(CLI::AsSizeValue(false));
  app.add_option("--collectives", collectives, "Of all_reduce, all_gather, reduce_scatter, all_to_all (all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}));
  app.add_flag("--register", wanted.registered, "With registered buffers");
  app.add_option("--set", settings, "key=value")->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) return app.exit(CLI::ValidationError("--set", "key=value is wanted"));
    wanted.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  for (const auto& [name, collective] : tutti::stress::kCollectives) {
    const bool named = std::find(collectives.begin(), collectives.end(), name) != collectives.end();
    if (named || collectives.empty()) wanted.collectives.push_back(collective);
  }
  return tutti::stress::run(wanted);
}
