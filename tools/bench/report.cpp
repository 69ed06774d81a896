// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

namespace tutti::bench {
namespace {

using Json = nlohmann::ordered_json;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string op_text(const check::Problem& problem) {
  return check::reduces(problem.collective) ? std::string(to_string(problem.op)) : "none";
}

int root_of(const check::Problem& problem) {
  return check::has_root(problem.collective) ? problem.root : -1;
}

class Table : public Report {
 public:
  explicit Table(bool verbose) : verbose_(verbose) {}

  void begin(const Preamble& preamble) override {
    const Request& request = preamble.request;
    fmt::print("# Tutti {}: {}, {} ranks as {}\n", TUTTI_VERSION, request.name, request.session.rank_count,
               request.threads ? "threads" : "processes");
    std::map<std::string, std::string> by_host;
    for (size_t rank = 0; rank < preamble.places.size(); ++rank) {
      const Place& place = preamble.places[rank];
      by_host[place.host] += fmt::format(" {}:{}", rank, place.process);
    }
    for (const auto& [host, ranks] : by_host) fmt::print("# host {}, rank:pid{}\n", host, ranks);
    if (!request.session.settings.empty()) fmt::print("# settings {}\n", fmt::join(request.session.settings, " "));
    if (verbose_) fmt::print("# seed {}, start-up {:.1f} ms\n", request.seed, preamble.init_ms);
    if (!request.check) fmt::print("# results are not checked\n");
    fmt::print("#\n# {:58}{:^39}{:^39}\n", "", "out-of-place", "in-place");
    fmt::print("#{:>13}{:>14}{:>12}{:>11}{:>6}", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; ++i) fmt::print("{:>12}{:>10}{:>10}{:>8}", "time", "algbw", "busbw", "#wrong");
    fmt::print("  ran\n#{:>13}{:>14}{:29}", "(B)", "(elements)", "");
    for (int i = 0; i < 2; ++i) fmt::print("{:>12}{:>10}{:>10}{:>8}", "(us)", "(GB/s)", "(GB/s)", "");
    fmt::print("\n");
    std::fflush(stdout);
  }

  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    fmt::print("{:>14}{:>14}{:>12}{:>11}{:>6}", check::bytes_of(problem), problem.count, to_string(problem.type),
               op_text(problem), root_of(problem));
    print_timing(problem, row.out_of_place);
    print_timing(problem, row.in_place);
    fmt::print("  {}", to_string(row.choice));
    if (verbose_) fmt::print(", predicted {:.1f} us", row.choice.predicted_us);
    fmt::print("\n");
    std::fflush(stdout);
  }

  void end(const Summary& summary) override {
    if (verbose_) fmt::print("# peak memory of rank 0: {} MiB\n", summary.peak_kib >> 10);
    fmt::print("# average bus bandwidth {:.4g} GB/s, wrong {}\n", summary.busbw, summary.wrong);
  }

 private:
  static void print_timing(const check::Problem& problem, const std::optional<Timing>& timing) {
    if (!timing) {
      fmt::print("{:>12}{:>10}{:>10}{:>8}", "-", "-", "-", "-");
      return;
    }
    fmt::print("{:>12.{}f}{:>10.2f}{:>10.2f}{:>8}", timing->time_us, timing->time_us < 100'000 ? 2 : 0,
               algorithm_bandwidth(problem, timing->time_us), bus_bandwidth(problem, timing->time_us), timing->wrong);
  }

  bool verbose_;
};

class Csv : public Report {
 public:
  void begin(const Preamble&) override {
    fmt::print(
        "bytes,count,type,op,root,time_us,min_us,algbw,busbw,wrong,"
        "in_place_time_us,in_place_min_us,in_place_algbw,in_place_busbw,in_place_wrong,ran\n");
  }
  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    fmt::print("{},{},{},{},{}", check::bytes_of(problem), problem.count, to_string(problem.type), op_text(problem),
               root_of(problem));
    for (const auto& timing : {row.out_of_place, row.in_place}) {
      if (!timing) {
        fmt::print(",,,,,");
        continue;
      }
      fmt::print(",{:.3f},{:.3f},{:.4f},{:.4f},{}", timing->time_us, timing->min_us,
                 algorithm_bandwidth(problem, timing->time_us), bus_bandwidth(problem, timing->time_us), timing->wrong);
    }
    fmt::print(",{}\n", to_string(row.choice));
    std::fflush(stdout);
  }
  void end(const Summary&) override {}
};

class JsonFile : public Report {
 public:
  explicit JsonFile(File file) : file_(std::move(file)) {}

  void begin(const Preamble& preamble) override {
    const Request& request = preamble.request;
    document_ = {{"version", TUTTI_VERSION},
                 {"collective", request.name},
                 {"ranks", request.session.rank_count},
                 {"launch", request.threads ? "threads" : "processes"},
                 {"places", Json::array()},
                 {"settings", Json::object()},
                 {"seed", request.seed},
                 {"checked", request.check},
                 {"init_ms", preamble.init_ms},
                 {"results", Json::array()}};
    for (const Place& place : preamble.places) {
      document_["places"].push_back({{"host", place.host}, {"process", place.process}});
    }
    for (const auto& [key, value] : request.session.options(0).settings) document_["settings"][key] = value;
  }

  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    Json result = {{"bytes", check::bytes_of(problem)},
                   {"count", problem.count},
                   {"type", to_string(problem.type)},
                   {"op", op_text(problem)},
                   {"root", root_of(problem)}};
    add_timing(result, "", problem, row.out_of_place);
    add_timing(result, "in_place_", problem, row.in_place);
    result["ran"] = to_string(row.choice);
    result["predicted_us"] = row.choice.predicted_us;
    document_["results"].push_back(std::move(result));
  }

  void end(const Summary& summary) override {
    document_["average_busbw"] = summary.busbw;
    document_["wrong"] = summary.wrong;
    document_["peak_kib"] = summary.peak_kib;
    fmt::print(file_.get(), "{}\n", document_.dump(2));
    std::fflush(file_.get());
  }

 private:
  static void add_timing(Json& result, const std::string& prefix, const check::Problem& problem,
                         const std::optional<Timing>& timing) {
    if (!timing) return;
    result[prefix + "time_us"] = timing->time_us;
    result[prefix + "min_us"] = timing->min_us;
    result[prefix + "algbw"] = algorithm_bandwidth(problem, timing->time_us);
    result[prefix + "busbw"] = bus_bandwidth(problem, timing->time_us);
    result[prefix + "wrong"] = timing->wrong;
  }

  File file_;
  Json document_;
};

}  // namespace

Result<std::vector<std::shared_ptr<Report>>> make_reports(const Request& request) {
  std::vector<std::shared_ptr<Report>> reports;
  if (request.csv) {
    reports.push_back(std::make_shared<Csv>());
  } else if (request.json != "-") {
    reports.push_back(std::make_shared<Table>(request.verbose));
  }
  if (request.json) {
    File file(*request.json == "-" ? stdout : std::fopen(request.json->c_str(), "w"));
    if (!file)
      return Status(Code::kSystem,
                    fmt::format("cannot write {}: {}", *request.json, std::generic_category().message(errno)));
    reports.push_back(std::make_shared<JsonFile>(std::move(file)));
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

std::string to_string(const Choice& choice) {
  return fmt::format("{}{}{}/{}/{} ×{}", choice.algorithm, choice.variant.empty() ? "" : "/", choice.variant,
                     choice.protocol, choice.transport, choice.channels);
}

}  // namespace tutti::bench
