// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tools/bench/exchange.h"

namespace tutti::tune {
namespace {

constexpr const char* kPatience = "timeouts.operation=60s";  ///< a candidate that hangs must not use up the time

/// Failures that all ranks detect equally, before any rank depends on a peer: the sweep continues without this run.
bool is_harmless(const Status& status) {
  return status.code() == Code::kUnsupported || status.code() == Code::kInvalidArgument;
}

/// In one line: the selector's verdict on the candidate where the text has the verdicts on all.
std::string_view reason_of(const Status& status, const Candidate& candidate) {
  static constexpr std::string_view kExcluded = "excluded: ";
  std::string_view text = status.text();
  if (const size_t line = text.find("\n  " + candidate.text() + " "); line != std::string_view::npos) {
    const size_t verdict = text.find(kExcluded, line);
    if (verdict != std::string_view::npos) text.remove_prefix(verdict + kExcluded.size());
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

Sweep::Sweep(const Request& request, const std::vector<Candidate>& candidates, Communicator& control,
             Findings& findings)
    : request_(request), candidates_(candidates), control_(control), findings_(findings) {
  for (const std::string& name : request.collectives) findings.series.emplace_back(name, request.problems(name));
  findings.of_runs = candidates.size() * request.channels.size();
}

Status Sweep::run() {
  for (size_t candidate = 0; candidate < candidates_.size(); ++candidate) {
    for (const uint32_t channels : request_.channels) {
      TUTTI_ASSIGN(const bool over, out_of_time());
      if (over) return {};
      const Run run{candidate, channels};
      show(run);
      TUTTI_TRY(measure(run).with_context(text(run)));
      ++findings_.runs;
    }
  }
  return {};
}

Status Sweep::measure(const Run& run) {
  const List list = wanted(run);
  if (list.empty()) return {};
  Status status = attempt(run, list);
  if (status.ok() || !is_harmless(status)) return status;
  // A collective that cannot run in this way must not stop the remaining collectives.
  for (Series* series : list) {
    if (list.size() > 1) status = attempt(run, {series});
    if (status.ok()) continue;
    if (!is_harmless(status)) return status;
    findings_.failed.push_back(
        fmt::format("{}: {}: {}", series->collective(), text(run), reason_of(status, candidates_[run.candidate])));
    series->drop_from(run);
  }
  return {};
}

bool Sweep::fits(const Run& run, const check::Problem& problem) const {
  const Candidate& candidate = candidates_[run.candidate];
  const size_t bytes = check::bytes_of(problem);
  return candidate.offers(problem.collective) && bytes >= candidate.min_bytes && bytes <= candidate.max_bytes;
}

Sweep::List Sweep::wanted(const Run& run) const {
  List list;
  for (Series& series : findings_.series) {
    const auto& problems = series.problems();
    for (size_t size = 0; size < problems.size(); ++size) {
      if (!fits(run, problems[size]) || series.is_settled(size, run)) continue;
      list.push_back(&series);
      break;
    }
  }
  return list;
}

Status Sweep::attempt(const Run& run, const List& list) {
  std::vector<std::string> collectives;
  for (const Series* series : list) collectives.push_back(series->collective());
  TUTTI_ASSIGN(ForcingFile forcing,
               ForcingFile::write(request_, candidates_[run.candidate], run.channels, collectives));
  bench::Request request = request_.bench;
  request.registered = candidates_[run.candidate].registered;
  request.session.config_file = forcing.path();
  request.session.settings.insert(request.session.settings.begin(), kPatience);
  request.session.settings.push_back(fmt::format("channels={}", run.channels));
  auto measurement = open(request, list, run);
  forcing.remove();
  Status status = measurement.status();
  if (measurement.ok()) {
    TUTTI_TRY(learn_gpu(**measurement));
    status = measure_with(**measurement, run, list);
    if (!status.ok()) (*measurement)->abort(status.text());
    // A rank that leaves early would be missed by a rank that is still in its last call.
    if (status.ok() || is_harmless(status)) TUTTI_TRY(bench::meet(control_));
    measurement->reset();  // leaves the measured communicator
  }
  subject_.reset();
  return status;
}

Result<std::unique_ptr<bench::Measurement>> Sweep::open(const bench::Request& request, const List& list,
                                                        const Run& run) {
  std::vector<check::Problem> problems;
  for (const Series* series : list) {
    for (const check::Problem& problem : series->problems()) {
      if (fits(run, problem)) problems.push_back(problem);
    }
  }
#ifdef TUTTI_HAS_CUDA
  if (request.device == bench::Device::kCuda) return bench::make_cuda_measurement(request, control_, problems);
#endif
  UniqueId own;
  if (control_.rank() == 0) {
    TUTTI_ASSIGN(own, UniqueId::create());
  }
  TUTTI_ASSIGN(const auto ids, bench::exchange(control_, own));
  Options options = request.session.options(control_.rank());
  options.settings.emplace_back("device", "host");
  TUTTI_ASSIGN(auto made, Communicator::create(ids.front(), control_.rank(), control_.size(), options));
  subject_ = std::make_unique<Communicator>(std::move(made));
  return bench::make_host_measurement(request, *subject_, problems);
}

Status Sweep::measure_with(bench::Measurement& measurement, const Run& run, const List& list) {
  for (Series* series : list) TUTTI_TRY(measure_series(measurement, run, *series));
  return {};
}

Status Sweep::measure_series(bench::Measurement& measurement, const Run& run, Series& series) {
  const auto& problems = series.problems();
  for (size_t size = 0; size < problems.size(); ++size) {
    if (!fits(run, problems[size]) || !series.worth(size, run)) continue;
    TUTTI_ASSIGN(const bool over, out_of_time());
    if (over) return {};
    auto row = measurement.measure(problems[size]);
    if (!row.ok()) return row.status().with_context(to_string(problems[size]));
    TUTTI_TRY(take(*row, size, run, series));
  }
  return {};
}

Status Sweep::take(const bench::Row& row, size_t size, const Run& run, Series& series) {
  const bench::Timing& timing = *row.ours.out_of_place;
  if (row.ran.channels != run.channels) {
    series.drop_from(run);  // the algorithm has fewer: that was measured already
  } else if (timing.wrong > 0) {
    findings_.wrong.push_back(fmt::format("{}: {}: {} wrong", to_string(row.problem), text(run), timing.wrong));
    series.drop(run);
  } else {
    series.add(size, run, timing.time_us);
  }
  return {};
}

Result<bool> Sweep::out_of_time() {
  if (request_.limit_s <= 0) return false;
  const std::chrono::duration<double> passed = Clock::now() - start_;
  TUTTI_ASSIGN(const auto all, bench::exchange(control_, uint8_t{passed.count() > request_.limit_s}));
  findings_.out_of_time = all.front() != 0;
  return findings_.out_of_time;
}

/// All ranks' GPUs, as tutti_topology.gpu_name has them.
Status Sweep::learn_gpu(const bench::Measurement& measurement) {
  if (!findings_.gpu.empty() || request_.bench.device == bench::Device::kHost) return {};
  struct Name {
    char text[128];
  };
  Name own{};
  measurement.device().copy(own.text, sizeof own.text - 1);
  TUTTI_ASSIGN(const auto all, bench::exchange(control_, own));
  std::vector<std::string> names;
  for (const Name& name : all) {
    if (std::find(names.begin(), names.end(), name.text) == names.end()) names.emplace_back(name.text);
  }
  findings_.gpu = fmt::format("{}", fmt::join(names, " + "));
  return {};
}

void Sweep::show(const Run& run) const {
  if (control_.rank() != 0 || isatty(STDERR_FILENO) != 1) return;
  fmt::print(stderr, "\r\033[K{}/{}: {} ...", findings_.runs + 1, findings_.of_runs, text(run));
}

std::string Sweep::text(const Run& run) const {
  return fmt::format("{} ×{}", candidates_[run.candidate].label(), run.channels);
}

}  // namespace tutti::tune
