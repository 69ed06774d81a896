// SPDX-License-Identifier: Apache-2.0
// Measurements as JSON. The file is a complete document after every row, also if the run is ended.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tools/bench/report.h"

namespace tutti::bench {
namespace {

using Json = nlohmann::ordered_json;

class JsonFile : public Report {
 public:
  explicit JsonFile(File file)
      : file_(std::move(file)), rewritable_(file_.get() != stdout && std::ftell(file_.get()) >= 0) {}

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
                 {"barrier", request.barrier},
                 {"init_ms", preamble.init_ms},
                 {"device", request.device == Device::kCuda ? "cuda" : "host"}};
    for (const ProcessLocation& location : preamble.locations) {
      document_["places"].push_back({{"host", location.host}, {"process", location.process}});
    }
    for (const auto& [key, value] : request.session.options(0).settings) document_["settings"][key] = value;
    if (request.device == Device::kCuda) add_device(preamble);
    document_["complete"] = false;
    document_["results"] = Json::array();
  }

  void row(const Row& row) override {
    const check::Problem& problem = row.problem;
    Json result = {{"bytes", check::bytes_of(problem)},
                   {"count", problem.count},
                   {"type", to_string(problem.type)},
                   {"op", op_text(problem)},
                   {"root", root_of(problem)}};
    add_timing(result, "", problem, row.ours.out_of_place);
    add_timing(result, "in_place_", problem, row.ours.in_place);
    if (row.theirs) {
      add_theirs(result, "", row.ours.out_of_place, row.theirs->out_of_place);
      add_theirs(result, "in_place_", row.ours.in_place, row.theirs->in_place);
    }
    result["ran"] = row.ran.text;
    result["predicted_us"] = row.ran.predicted_us;
    document_["results"].push_back(std::move(result));
    if (rewritable_) write();
  }

  void end(const Summary& summary) override {
    document_["average_busbw"] = summary.busbw;
    document_["wrong"] = summary.wrong;
    if (summary.ratio > 0) document_["ratio"] = summary.ratio;
    document_["peak_kib"] = summary.peak_kib;
    document_["failovers"] = summary.counters.failovers;
    document_["resent_messages"] = summary.counters.resent_messages;
    document_["complete"] = true;
    write();
  }

 private:
  void write() {
    const std::string text = document_.dump(2) + "\n";
    // Overwrites the previous document, which is shorter, in one call. A reader thus finds a whole document at any
    // time.
    const auto bytes = static_cast<ssize_t>(text.size());
    if (rewritable_ && pwrite(fileno(file_.get()), text.data(), text.size(), 0) == bytes) return;
    fmt::print(file_.get(), "{}", text);
    if (std::fflush(file_.get()) != 0) throw std::system_error(errno, std::generic_category(), "cannot write the JSON");
  }

  void add_device(const Preamble& preamble) {
    document_["device_name"] = preamble.device;
    document_["graph"] = preamble.request.graph;
    document_["registered"] = preamble.request.registered;
    document_["group"] = preamble.request.group;
    document_["blocks"] = preamble.request.blocks;
    document_["timed"] = preamble.request.launch ? "launch" : "device";
    document_["libraries"] = Json::array();
    for (const LibraryFacts& library : preamble.libraries) {
      document_["libraries"].push_back({{"name", library.name},
                                        {"version", library.version},
                                        {"path", library.path},
                                        {"first", cost_of(library.first)}});
      if (library.further) document_["libraries"].back()["further"] = cost_of(*library.further);
    }
  }
  static Json cost_of(const Cost& cost) {
    return {
        {"init_ms", cost.init_ms}, {"init_bytes", cost.init_bytes}, {"calls_ms", cost.calls_ms}, {"bytes", cost.bytes}};
  }

  static void add_timing(Json& result, const std::string& prefix, const check::Problem& problem,
                         const std::optional<Timing>& timing) {
    if (!timing) return;
    result[prefix + "time_us"] = timing->time_us;
    result[prefix + "min_us"] = timing->min_us;
    result[prefix + "algbw"] = algorithm_bandwidth(problem, timing->time_us);
    result[prefix + "busbw"] = bus_bandwidth(problem, timing->time_us);
    result[prefix + "wrong"] = timing->wrong;
  }

  static void add_theirs(Json& result, const std::string& prefix, const std::optional<Timing>& ours,
                         const std::optional<Timing>& theirs) {
    if (!ours || !theirs) return;
    result[prefix + "their_time_us"] = theirs->time_us;
    result[prefix + "their_min_us"] = theirs->min_us;
    result[prefix + "their_wrong"] = theirs->wrong;
    result[prefix + "ratio"] = ratio(*ours, *theirs);
  }

  File file_;
  bool rewritable_;
  Json document_;
};

}  // namespace

std::shared_ptr<Report> make_json_report(File file) {
  return std::make_shared<JsonFile>(std::move(file));
}

}  // namespace tutti::bench
