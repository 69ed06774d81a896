// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <map>
#include <system_error>

namespace tutti::bench {
namespace {

std::string name_of(const LibraryFacts& library) {
  return library.name + " " + library.version;
}

class Table : public Report {
 public:
  explicit Table(const Request& request)
      : verbose_(request.verbose), compares_(!request.compare.empty()), launch_(request.launch) {}

  void begin(const Preamble& preamble) override {
    const Request& request = preamble.request;
    fmt::print("# Tutti {}: {}, {} ranks as {}\n", TUTTI_VERSION, request.name, request.session.rank_count,
               request.threads ? "threads" : "processes");
    std::map<std::string, std::string> by_host;
    for (size_t rank = 0; rank < preamble.locations.size(); ++rank) {
      const ProcessLocation& location = preamble.locations[rank];
      by_host[location.host] += fmt::format(" {}:{}", rank, location.process);
    }
    for (const auto& [host, ranks] : by_host) fmt::print("# host {}, rank:pid{}\n", host, ranks);
    if (!preamble.libraries.empty()) print_device(preamble);
    if (!request.session.settings.empty()) fmt::print("# settings {}\n", fmt::join(request.session.settings, " "));
    if (verbose_) fmt::print("# seed {}, start-up {:.1f} ms\n", request.seed, preamble.init_ms);
    if (request.registered) fmt::print("# buffers are registered\n");
    if (request.barrier) fmt::print("# a barrier before each call, whose time is subtracted\n");
    if (!request.check) {
      fmt::print("# results are not checked\n");
    } else if (preamble.libraries.empty()) {
      fmt::print("# checked: every element of the first call, and of the last call of each batch\n");
    } else {
      fmt::print("# checked: elements of the first call, and of the last call of all batches\n");
    }
    print_head();
    std::fflush(stdout);
  }

  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    fmt::print("{:>14}{:>14}{:>12}{:>11}{:>6}", check::bytes_of(problem), problem.count, to_string(problem.type),
               op_text(problem), root_of(problem));
    print_timing(problem, row.ours.out_of_place, row.theirs ? row.theirs->out_of_place : std::nullopt);
    print_timing(problem, row.ours.in_place, row.theirs ? row.theirs->in_place : std::nullopt);
    fmt::print("  {}", row.ran.text);
    if (verbose_ && row.ran.predicted_us > 0) fmt::print(", predicted {:.1f} us", row.ran.predicted_us);
    fmt::print("\n");
    std::fflush(stdout);
  }

  void end(const Summary& summary) override {
    if (verbose_) fmt::print("# peak memory of rank 0: {} MiB\n", summary.peak_kib >> 10);
    if (compares_) fmt::print("# theirs / ours, geometric mean: {:.3f}\n", summary.ratio);
    if (const Counters& counters = summary.counters; counters.failovers > 0) {
      fmt::print("# {} fail-over(s) of connections, {} message(s) sent again\n", counters.failovers,
                 counters.resent_messages);
    }
    if (!launch_) fmt::print("# average bus bandwidth {:.4g} GB/s, ", summary.busbw);
    fmt::print("{}wrong {}\n", launch_ ? "# " : "", summary.wrong);
  }

 private:
  void print_device(const Preamble& preamble) const {
    fmt::print("# device {}: {}{}{}, {}\n", preamble.device, name_of(preamble.libraries.front()),
               compares_ ? ", theirs is " : "", compares_ ? name_of(preamble.libraries.back()) : "",
               how(preamble.request));
    if (!verbose_) return;
    for (const LibraryFacts& library : preamble.libraries) {
      fmt::print("# {}{}{}\n", name_of(library), library.path.empty() ? "" : ": ", library.path);
      print_cost("first", library.first);
      if (library.further) print_cost("further", *library.further);
    }
  }
  static void print_cost(const char* which, const Cost& cost) {
    fmt::print(
        "#   {:7} communicator: start-up {:.1f} ms, {:.1f} MiB of device memory; with the first calls {:.1f} ms, "
        "{:.1f} MiB\n",
        which, cost.init_ms, mib(cost.init_bytes), cost.init_ms + cost.calls_ms, mib(cost.bytes));
  }
  static double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

  static std::string how(const Request& request) {
    std::string text = request.graph ? "replays of CUDA graphs" : "calls one by one";
    if (request.group > 1) text += fmt::format(", in groups of {}", request.group);
    if (request.blocks > 0) text += fmt::format(", at most {} blocks", request.blocks);
    return text + (request.launch ? ", times of the CPU to enqueue a call" : "");
  }

  void print_head() const {
    const int width = compares_ ? 59 : 39;
    fmt::print("#\n# {:58}{:^{}}{:^{}}\n", "", "out-of-place", width, "in-place", width);
    fmt::print("#{:>13}{:>14}{:>12}{:>11}{:>6}", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; ++i) {
      fmt::print("{:>12}{:>10}{:>10}{:>8}", "time", "algbw", "busbw", "#wrong");
      if (compares_) fmt::print("{:>12}{:>8}", "theirs", "ratio");
    }
    fmt::print("  ran\n#{:>13}{:>14}{:29}", "(B)", "(elements)", "");
    for (int i = 0; i < 2; ++i) {
      fmt::print("{:>12}{:>10}{:>10}{:>8}", "(us)", "(GB/s)", "(GB/s)", "");
      if (compares_) fmt::print("{:>12}{:>8}", "(us)", "");
    }
    fmt::print("\n");
  }

  void print_timing(const check::Problem& problem, const std::optional<Timing>& timing,
                    const std::optional<Timing>& theirs) const {
    if (!timing) {
      fmt::print("{:>12}{:>10}{:>10}{:>8}", "-", "-", "-", "-");
      if (compares_) fmt::print("{:>12}{:>8}", "-", "-");
      return;
    }
    fmt::print("{:>12.{}f}", timing->time_us, decimals(*timing));
    if (launch_) {
      fmt::print("{:>10}{:>10}", "-", "-");  // no data has moved in that time
    } else {
      fmt::print("{:>10.2f}{:>10.2f}", algorithm_bandwidth(problem, timing->time_us),
                 bus_bandwidth(problem, timing->time_us));
    }
    fmt::print("{:>8}", timing->wrong);
    if (theirs) fmt::print("{:>12.{}f}{:>8.2f}", theirs->time_us, decimals(*theirs), ratio(*timing, *theirs));
  }
  static int decimals(const Timing& timing) { return timing.time_us < 100'000 ? 2 : 0; }

  bool verbose_;
  bool compares_;
  bool launch_;
};

class Csv : public Report {
 public:
  void begin(const Preamble& preamble) override {
    compares_ = !preamble.request.compare.empty();
    fmt::print(
        "bytes,count,type,op,root,time_us,min_us,algbw,busbw,wrong,"
        "in_place_time_us,in_place_min_us,in_place_algbw,in_place_busbw,in_place_wrong,ran");
    if (compares_) {
      fmt::print(
          ",their_time_us,their_min_us,their_wrong,ratio,"
          "in_place_their_time_us,in_place_their_min_us,in_place_their_wrong,in_place_ratio");
    }
    fmt::print("\n");
  }
  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    fmt::print("{},{},{},{},{}", check::bytes_of(problem), problem.count, to_string(problem.type), op_text(problem),
               root_of(problem));
    for (const auto& timing : {row.ours.out_of_place, row.ours.in_place}) {
      if (!timing) {
        fmt::print(",,,,,");
        continue;
      }
      fmt::print(",{:.3f},{:.3f},{:.4f},{:.4f},{}", timing->time_us, timing->min_us,
                 algorithm_bandwidth(problem, timing->time_us), bus_bandwidth(problem, timing->time_us), timing->wrong);
    }
    fmt::print(",{}", row.ran.text);
    if (row.theirs) {
      print_theirs(row.ours.out_of_place, row.theirs->out_of_place);
      print_theirs(row.ours.in_place, row.theirs->in_place);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  void end(const Summary&) override {}

 private:
  static void print_theirs(const std::optional<Timing>& ours, const std::optional<Timing>& theirs) {
    if (!ours || !theirs) {
      fmt::print(",,,,");
      return;
    }
    fmt::print(",{:.3f},{:.3f},{},{:.4f}", theirs->time_us, theirs->min_us, theirs->wrong, ratio(*ours, *theirs));
  }

  bool compares_ = false;
};

}  // namespace

Result<std::vector<std::shared_ptr<Report>>> make_reports(const Request& request) {
  std::vector<std::shared_ptr<Report>> reports;
  if (request.csv) {
    reports.push_back(std::make_shared<Csv>());
  } else if (request.json != "-") {
    reports.push_back(std::make_shared<Table>(request));
  }
  if (request.json) {
    File file(*request.json == "-" ? stdout : std::fopen(request.json->c_str(), "w"));
    if (!file)
      return Status(Code::kSystem,
                    fmt::format("cannot write {}: {}", *request.json, std::generic_category().message(errno)));
    reports.push_back(make_json_report(std::move(file)));
  }
  return reports;
}

double algorithm_bandwidth(const check::Problem& problem, double time_us) {
  return time_us > 0 ? static_cast<double>(check::bytes_of(problem)) / time_us / 1e3 : 0;
}

double bus_bandwidth(const check::Problem& problem, double time_us) {
  const double n = problem.rank_count;
  double factor = 1;
  if (problem.collective == Collective::kAllReduce) factor = 2 * (n - 1) / n;
  if (check::has_blocks(problem.collective)) factor = (n - 1) / n;
  return factor * algorithm_bandwidth(problem, time_us);
}

double ratio(const Timing& ours, const Timing& theirs) {
  return ours.time_us > 0 ? theirs.time_us / ours.time_us : 1;
}

std::string op_text(const check::Problem& problem) {
  return check::reduces(problem.collective) ? std::string(to_string(problem.op)) : "none";
}

int root_of(const check::Problem& problem) {
  return check::has_root(problem.collective) ? problem.root : -1;
}

}  // namespace tutti::bench
