// SPDX-License-Identifier: Apache-2.0
// `tutti tune`: measures the time of every candidate on this machine, and writes the table of the fastest.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "base/file.h"
#include "tools/bench/exchange.h"
#include "tools/commands.h"
#include "tools/launch.h"
#include "tools/tune/figures.h"
#include "tools/tune/write.h"

namespace tutti::tune {
namespace {

constexpr const char* kFooter = R"(
Measures each algorithm variant × protocol × number of channels as 'tutti bench' does, and checks every result. Writes a
table that the tuner plugin 'table' follows. It holds for this Tutti, these GPUs and this number of ranks.

Examples:
  tutti tune --ranks 8 --device cuda --out h200x8.yaml
  tutti bench all_reduce -n 8 --device cuda --set settings.tuner.table.file=h200x8.yaml

With --figures it measures the network between the hosts and the memory of the hosts instead, and writes hardware
figures:
  srun tutti tune --figures --out figures.yaml
  tutti tune --figures -n 2 --hosts a,b --out figures.yaml)";

/// If the file cannot be written after all, prints the text: its measurements took minutes.
Status write(const Request& request, const std::string& text) {
  const Status written = request.out.empty() ? Status() : base::write_file(request.out, text);
  if (request.out.empty() || !written.ok()) fmt::print("{}", text);
  return written;
}

void say(const Request& request, const Findings& findings, bool written) {
  if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");  // the progress
  for (const std::string& wrong : findings.wrong) fmt::print(stderr, "tutti: excluded: {}\n", wrong);
  if (findings.out_of_time) {
    fmt::print(stderr, "tutti: stopped after {} s (--limit): {} of {} candidates with a number of channels measured\n",
               request.limit_s, findings.runs, findings.of_runs);
  }
  if (written && !request.out.empty()) fmt::print(stderr, "tutti: wrote {}\n", request.out);
}

/// The work of one rank. Rank 0 writes the table, also if a failure ended the sweep.
Status tune_as(const Request& request, const UniqueId& id, int rank) {
  TUTTI_ASSIGN(const Offer offer, list_candidates(request));
  TUTTI_ASSIGN(auto control, Communicator::create(id, rank, request.bench.session.rank_count,
                                                  request.bench.session.control_options(rank)));
  Findings findings;
  const Status swept = Sweep(request, offer.candidates, control, findings).run();
  // Without this, ranks that wait for their devices would not notice that this rank is gone.
  if (!swept.ok()) control.abort(fmt::format("rank {}: {}", rank, swept.text()));
  Status written;
  if (rank == 0) {
    written = write(request, table_text(request, offer, findings, swept));
    say(request, findings, written.ok());
  }
  TUTTI_TRY(swept);
  const auto has_none = [](const Series& series) { return series.sample_count() == 0; };
  if (rank == 0 && written.ok() && !findings.out_of_time && std::ranges::all_of(findings.series, has_none)) {
    written = {Code::kUnsupported,
               fmt::format("nothing was measured, so the table is empty{}{}", findings.failed.empty() ? "" : ": ",
                           findings.failed.empty() ? "" : findings.failed.front())};
  }
  TUTTI_TRY(bench::report_to_first(control));
  return written;
}

/// The same for the hardware figures.
Status measure_figures_as(const Request& request, const UniqueId& id, int rank) {
  const tools::Session& session = request.bench.session;
  Options options = session.options(rank);
  TUTTI_ASSIGN(const config::Config config, tools::load_config(session.config_file, options.settings));
  TUTTI_ASSIGN(const std::string network, network_of(config));
  options.settings.emplace_back("device", "host");
  TUTTI_ASSIGN(auto communicator, Communicator::create(id, rank, session.rank_count, options));
  TUTTI_ASSIGN(const Measurements measured, measure(communicator, config.text("host")));
  const Status written = rank == 0 ? write(request, figures_text(request, network, measured)) : Status();
  TUTTI_TRY(bench::report_to_first(communicator));
  return written;
}

/// Before the measurements. Only rank 0 writes, so a launcher's other ranks need no such file.
Status check_out(const Request& request) {
  const auto& assignment = request.bench.session.assignment;
  if (request.out.empty() || (assignment && assignment->rank != 0)) return {};
  return base::check_writable(request.out).with_context("--out");
}

int run(const Request& request) {
  if (const Status status = check_out(request); !status.ok()) return tools::fail(status);
  const auto rank_main = [&](const UniqueId& id, int rank) -> Result<int> {
    TUTTI_TRY(request.figures ? measure_figures_as(request, id, rank) : tune_as(request, id, rank));
    return tools::kSuccess;
  };
  return tools::run_ranks(request.bench.session, request.bench.threads, rank_main);
}

}  // namespace
}  // namespace tutti::tune

namespace tutti::tools {

void add_tune(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("tune", "Measure what is fastest here, and write it down for a tuner");
  command->footer(tune::kFooter);
  const auto options = std::make_shared<tune::RequestOptions>(*command);
  command->callback([options, &exit_code] { exit_code = tune::run(options->finish()); });
}

}  // namespace tutti::tools
