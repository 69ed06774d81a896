// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>

#include "tools/names.h"

namespace tutti::tune {
namespace {

constexpr int kBatches = 3;
constexpr double kBatchUs = 5'000;
constexpr uint32_t kMostChannels = 64;
constexpr size_t kCheckedBytes = size_t{8} << 20;  // many measurements: the check must not take longer than they do
constexpr size_t kMaxBytesOfHost = size_t{64} << 20;
constexpr size_t kMaxBytesOfGpu = size_t{1} << 30;

/// All that are made by an algorithm.
std::vector<std::string> tunable() {
  auto names = tools::all_names<Collective>();
  std::erase(names, std::string(to_string(Collective::kSendRecv)));
  return names;
}

/// The command of this process, as it was typed.
std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words;
  for (std::string word; std::getline(file, word, '\0');) {
    if (words.empty()) word = "tutti";
    words += (words.empty() ? "" : " ") + word;
  }
  std::replace(words.begin(), words.end(), '\n', ' ');  // it becomes one line of comment
  return words;
}

}  // namespace

std::vector<check::Problem> Request::problems(const std::string& collective) const {
  bench::Request one = bench;
  one.name = collective;
  return one.problems();
}

RequestOptions::RequestOptions(CLI::App& command) {
  request_.bench.session.add_options(command);
  request_.collectives = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"};
  request_.bench.batches = kBatches;
  request_.bench.batch_us = kBatchUs;
  request_.bench.checked_bytes = kCheckedBytes;
  request_.bench.max_bytes = 0;  // by device, in finish()
  add_work_options(command);
  add_run_options(command);
}

void RequestOptions::add_work_options(CLI::App& command) {
  const auto size = [&](const std::string& name, size_t& value, const std::string& text) {
    command.add_option(name, value, text)->transform(tools::kSize)->option_text("SIZE");
  };
  const std::string defaults = fmt::format("{}", fmt::join(request_.collectives, ","));
  command.add_option("--collectives", request_.collectives, "What to measure (default " + defaults + ")")
      ->delimiter(',')
      ->check(tools::one_of(tunable()))
      ->option_text("NAME,...");
  size("-b,--min", request_.bench.min_bytes, "Smallest size, of the larger buffer (default 8)");
  size("-e,--max", request_.bench.max_bytes, "Largest size (default 1G; on the host 64M)");
  command.add_option("-f,--factor", request_.bench.factor, "From one size to the next (default 4)")
      ->check(CLI::Range(2, 1 << 20))
      ->option_text("N");
  command.add_option("-t,--type", type_, "Data type (default float32)")
      ->check(tools::one_of(tools::all_names<DataType>()))
      ->option_text("TYPE");
  command
      .add_option("--channels", request_.channels, "Numbers of channels to try (default 1,2,4,...,64; on the host 1)")
      ->delimiter(',')
      ->check(CLI::Range(1u, kMostChannels))
      ->option_text("N,...");
}

void RequestOptions::add_run_options(CLI::App& command) {
  command
      .add_option("--device", device_,
                  "Where buffers are: host or cuda (default: the setting device); rank r has device r mod devices")
      ->check(tools::one_of({"host", "cuda"}))
      ->option_text("host|cuda");
  command.add_flag("--graph,!--no-graph", request_.bench.graph, "With cuda: time replays of CUDA graphs (default)");
  command.add_flag("--register", request_.bench.registered,
                   "With cuda: with registered buffers, and entries for calls that have them");
  command.add_flag("--threads", request_.bench.threads, "Ranks are threads of one process (default: processes)");
  command.add_option("--repeat", request_.bench.batches, "Batches, of which the median counts (default 3)")
      ->check(tools::kFromOne)
      ->option_text("N");
  command.add_option("--limit", request_.limit_s, "Measure nothing new after so many seconds (default: no limit)")
      ->check(tools::kFromZero)
      ->option_text("SECONDS");
  command.add_flag("--figures", request_.figures,
                   "Measure latency and processor time of the network between the hosts, and the rate of the memory "
                   "that ranks of a host share, for hardware.file");
  command.add_option("--out", request_.out, "Where the table or the figures go (default: standard output)")
      ->option_text("FILE");
  request_.bench.graph = true;
}

Request RequestOptions::finish() const {
  Request request = request_;
  const auto demand = [](bool condition, const char* option, const std::string& text) {
    if (!condition) throw CLI::ValidationError(option, text);
  };
  bench::Request& bench = request.bench;
  const Status launched = bench.session.ask_launcher();
  demand(launched.ok(), "--ranks", std::string(launched.text()));
  const bool cuda = bench.session.wants_cuda(device_);
  const Status runnable = tools::Session::check_cuda(cuda);
  demand(runnable.ok(), "--device", std::string(runnable.text()));
  demand(cuda || !bench.registered, "--register", "needs --device cuda");
  demand(!cuda || !request.figures, "--figures", "measures between host ranks; leave out --device cuda");
  if (bench.max_bytes == 0) bench.max_bytes = cuda ? kMaxBytesOfGpu : kMaxBytesOfHost;
  demand(bench.min_bytes > 0, "--min", "must be at least 1");
  demand(bench.min_bytes <= bench.max_bytes, "--max", "is less than --min");
  demand(bench.session.hosts.size() <= static_cast<size_t>(bench.session.rank_count), "--hosts",
         "names more hosts than there are ranks");
  bench.device = cuda ? bench::Device::kCuda : bench::Device::kHost;
  bench.graph = bench.graph && cuda;
  bench.types = {*data_type_from(type_)};
  bench.ops = {ReduceOp::kSum};
  bench.placement = bench::Placement::kOut;
  bench.seed = 1;
  // Jobs on the host have one channel unless they ask for more.
  if (request.channels.empty())
    request.channels = cuda ? std::vector<uint32_t>{1, 2, 4, 8, 16, 32, 64} : std::vector<uint32_t>{1};
  std::sort(request.channels.begin(), request.channels.end());
  request.channels.erase(std::unique(request.channels.begin(), request.channels.end()), request.channels.end());
  request.command = own_command();
  return request;
}

}  // namespace tutti::tune
