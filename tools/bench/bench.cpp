// SPDX-License-Identifier: Apache-2.0
// `tutti bench`: measures one collective over a sweep of sizes, and checks every result.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>

#include "tools/bench/exchange.h"
#include "tools/bench/report.h"
#include "tools/commands.h"
#include "tools/launch.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Reports = std::vector<std::shared_ptr<Report>>;

constexpr const char* kFooter = R"(
Sizes, bandwidths and the table are those of nccl-tests: a size is that of the larger buffer; bus bandwidth is algorithm
bandwidth scaled to what each link carries. The column 'ran' says what ran: algorithm/protocol/transport ×channels.

Examples:
  tutti bench all_reduce --ranks 4 --min 8 --max 16M --factor 4
  tutti bench reduce_scatter -n 3 --type bfloat16,float16 --op all --in-place only
  tutti bench all_to_all -n 4 --hosts a,b --set network=socket --json result.json
  tutti bench all_reduce -n 4 --device cuda --graph --compare libnccl.so.2

Under a launcher (mpirun, srun, torchrun), each process is the rank that the launcher states:
  mpirun -n 4 tutti bench all_reduce

Ranks on several machines without a launcher. The file has a line for each host, for example 'node1 slots=8':
  tutti bench all_reduce --ssh hosts.txt

Ranks that you start yourself, each with the same id, in a file that only you can read, or in the variable TUTTI_ID:
  tutti id --at $HOST_OF_RANK_0:7000 --file job.id
  tutti bench all_reduce --ranks 16 --rank $R --id-file job.id)";

/// Shows the current measurement on a terminal, until its row is there.
class Progress {
 public:
  explicit Progress(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1) {}
  void show(const check::Problem& problem, size_t row, size_t rows) const {
    if (shown_) fmt::print(stderr, "\r\033[K{}/{}: {} ...", row + 1, rows, to_string(problem));
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_;
};

Result<ProcessLocation> own_location(const tools::Session& session, int rank) {
  ProcessLocation location{getpid(), {}};
  const Options options = session.options(rank);
  TUTTI_ASSIGN(const config::Config config, tools::load_config(options.config_file, options.settings));
  const std::string& pretended = config.text("host");
  if (pretended.empty()) {
    gethostname(location.host, sizeof(location.host) - 1);
  } else {
    pretended.copy(location.host, sizeof(location.host) - 1);
  }
  return location;
}

/// VmHWM of /proc/self/status: the most memory this process has held.
size_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return 0;
}

/// Adds a row's measurements to the totals; `busbw` is a sum until the end, and `ratio` one of logarithms.
int add(const Row& row, Summary& summary) {
  int measurements = 0;
  for (const auto place : {&Timings::out_of_place, &Timings::in_place}) {
    const auto& ours = row.ours.*place;
    if (!ours) continue;
    summary.busbw += bus_bandwidth(row.problem, ours->time_us);
    summary.wrong += ours->wrong;
    ++measurements;
    if (!row.theirs) continue;
    summary.wrong += (*row.theirs.*place)->wrong;
    summary.ratio += std::log(ratio(*ours, *(*row.theirs.*place)));
  }
  return measurements;
}

Result<Summary> sweep(const Request& request, Measurement& measurement, const Reports& reports) {
  Summary summary;
  const Progress progress(!reports.empty());
  const auto problems = request.problems();
  int measurements = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    progress.show(problems[i], i, problems.size());
    auto row = measurement.measure(problems[i]);
    progress.clear();
    if (!row.ok()) return row.status().with_context(to_string(problems[i]));
    measurements += add(*row, summary);
    for (const auto& report : reports) report->row(*row);
  }
  summary.busbw /= std::max(measurements, 1);
  summary.ratio = request.compare.empty() ? 0 : std::exp(summary.ratio / std::max(measurements, 1));
  summary.peak_kib = peak_kib();
  summary.counters = measurement.counters();
  return summary;
}

/// Options of the measured communicator. With devices, options of the communicator through which ranks exchange facts.
Options first_options(const Request& request, int rank) {
  if (request.device != Device::kHost) return request.session.control_options(rank);
  Options options = request.session.options(rank);
  options.settings.emplace_back("device", "host");
  return options;
}

Result<std::unique_ptr<Measurement>> make_measurement(const Request& request, Communicator& communicator) {
#ifdef TUTTI_HAS_CUDA
  if (request.device == Device::kCuda) return make_cuda_measurement(request, communicator, request.problems());
#endif
  return make_host_measurement(request, communicator, request.problems());
}

Result<Summary> measure_with(Communicator& communicator, const Request& request, Preamble preamble,
                             const Reports& reports) {
  TUTTI_ASSIGN(const auto measurement, make_measurement(request, communicator));
  preamble.device = measurement->device();
  preamble.libraries = measurement->libraries();
  for (const auto& report : reports) report->begin(preamble);
  auto summary = sweep(request, *measurement, reports);
  if (!summary.ok()) measurement->abort(summary.status().text());
  return summary;
}

Counters sum(const std::vector<Counters>& counters) {
  return std::accumulate(counters.begin(), counters.end(), Counters{}, [](const Counters& a, const Counters& b) {
    return Counters{a.failovers + b.failovers, a.resent_messages + b.resent_messages};
  });
}

/// The work of one rank. Returns the number of wrong elements on all ranks together. Rank 0 writes the reports.
Result<uint64_t> measure_as(Request request, const UniqueId& id, int rank, const Reports& reports) {
  const auto start = Clock::now();
  TUTTI_ASSIGN(auto communicator,
               Communicator::create(id, rank, request.session.rank_count, first_options(request, rank)));
  const std::chrono::duration<double, std::milli> init = Clock::now() - start;
  TUTTI_ASSIGN(const double init_ms, largest(communicator, init.count()));
  TUTTI_ASSIGN(const auto seeds, exchange(communicator, request.seed));
  request.seed = seeds.front();
  TUTTI_ASSIGN(const ProcessLocation location, own_location(request.session, rank));
  TUTTI_ASSIGN(auto locations, exchange(communicator, location));

  auto summary = measure_with(communicator, request, {request, std::move(locations), init_ms, {}, {}}, reports);
  if (!summary.ok()) {
    // Without this, ranks that wait for their devices would not notice that this rank is gone.
    if (request.device == Device::kCuda) communicator.abort(fmt::format("rank {}: {}", rank, summary.status().text()));
    return summary.status();
  }
  // Rank 0 may host the places where the ranks meet: it leaves last.
  TUTTI_ASSIGN(const std::vector<Counters> counters, tell_first(communicator, summary->counters));
  summary->counters = sum(counters);
  for (const auto& report : reports) report->end(*summary);
  return summary->wrong;
}

/// In a launch by hand rank 0 serves the id that the user made up.
Result<UniqueId> meeting_place(const Request& request) {
  TUTTI_ASSIGN(const UniqueId id, UniqueId::from_string(request.id));
  if (request.rank > 0) return id;
  const size_t colon = request.id.rfind(':');
  return UniqueId::create_at(request.id.substr(0, colon), request.id.substr(colon + 1));
}

int run(const Request& request) {
  if (!request.ssh.hosts.empty()) return tools::run_by_ssh(request.ssh);
  const auto reports = make_reports(request);
  if (!reports.ok()) return tools::fail(reports.status());
  const auto rank_main = [&](const UniqueId& id, int rank) -> Result<int> {
    TUTTI_ASSIGN(const uint64_t wrong, measure_as(request, id, rank, rank == 0 ? *reports : Reports()));
    return wrong == 0 ? tools::kSuccess : tools::kFailure;
  };
  if (request.ssh_rank >= 0) {
    return tools::run_as_rank(tools::join_by_ssh(request.session, request.ssh_rank), request.ssh_rank, rank_main);
  }
  if (request.rank >= 0) {
    const auto id = meeting_place(request);
    if (!id.ok()) return tools::fail(id.status().with_context("the id"));
    return tools::run_as_rank(id, request.rank, rank_main);
  }
  // Before there are threads; a library with NCCL's API reads it when it starts.
  if (request.blocks > 0) setenv("NCCL_MAX_CTAS", std::to_string(request.blocks).c_str(), 1);
  return tools::run_ranks(request.session, request.threads, rank_main);
}

}  // namespace
}  // namespace tutti::bench

namespace tutti::tools {

void add_bench(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("bench", "Measure a collective and check its results");
  command->footer(bench::kFooter);
  const auto options = std::make_shared<bench::RequestOptions>(*command);
  command->callback([options, &exit_code] { exit_code = bench::run(options->finish()); });
}

}  // namespace tutti::tools
