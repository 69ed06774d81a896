// SPDX-License-Identifier: Apache-2.0
#include "tools/simulate/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tools/search/report.h"

namespace tutti::tools {
namespace {

using communicator::DryCommunicator;
using Json = nlohmann::ordered_json;

double gbs(const check::Problem& problem, double microseconds) {
  return microseconds > 0 ? static_cast<double>(check::bytes_of(problem)) / microseconds / 1e3 : 0;
}

/// The network of a call that no rule moves to another one; empty: none.
std::string network_name(const DryCommunicator& cluster) {
  const std::vector<tuner::Network>& networks = cluster.selector().choices().networks;
  return networks.empty() ? "" : networks.front().name;
}

/// The same; "-": none.
std::string network_of(const DryCommunicator& cluster) {
  const std::string name = network_name(cluster);
  return name.empty() ? "-" : name;
}

std::string reduction_of(const check::Problem& problem) {
  const std::string type(to_string(problem.type));
  return check::reduces(problem.collective) ? fmt::format("{} {}", type, to_string(problem.op)) : type;
}

Json json_of(const DryCommunicator& cluster, const tuner::Verdict& verdict) {
  const tuner::Selector& selector = cluster.selector();
  Json candidate = {{"name", verdict.name},
                    {"algorithm", selector.algorithm_name(verdict.decision)},
                    {"variant", selector.variant_name(verdict.decision)},
                    {"protocol", selector.choices().protocols[verdict.decision.protocol].name}};
  if (!verdict.excluded.empty()) {
    candidate["excluded"] = verdict.excluded;
    return candidate;
  }
  candidate["channels"] = verdict.decision.channels;
  candidate["predicted_us"] = verdict.decision.predicted_us;
  return candidate;
}

void print_candidates(const check::Problem& problem, const std::vector<tuner::Verdict>& verdicts) {
  for (size_t i = 1; i < verdicts.size(); ++i) {
    const tuner::Verdict& verdict = verdicts[i];
    const tuner::Decision& decision = verdict.decision;
    if (verdict.excluded.empty()) {
      fmt::print("{:>10}  {:<28} {:>8}  {:<10} {:>10}  {:>9.2f}\n", "", verdict.name, decision.channels, "",
                 duration(decision.predicted_us), gbs(problem, decision.predicted_us));
    } else {
      fmt::print("{:>10}  {:<28} excluded: {}\n", "", verdict.name, verdict.excluded);
    }
  }
}

}  // namespace

void print_predictions(const DryCommunicator& cluster, const std::vector<Prediction>& predictions, bool all) {
  const check::Problem& first = predictions.front().problem;
  const uint32_t here = cluster.rank_count() / cluster.node_count();
  fmt::print("{} {}, {} machine{} × {} rank{} = {} ranks, predicted\n", to_string(first.collective),
             reduction_of(first), cluster.node_count(), cluster.node_count() == 1 ? "" : "s", here,
             here == 1 ? "" : "s", cluster.rank_count());
  fmt::print("{:>10}  {:<28} {:>8}  {:<10} {:>10}  {:>9}\n", "size", "runs", "channels", "network", "time", "GB/s");
  for (const auto& [problem, verdicts] : predictions) {
    const tuner::Verdict& chosen = verdicts.front();
    fmt::print("{:>10}  {:<28} {:>8}  {:<10} {:>10}  {:>9.2f}\n", bytes_text(check::bytes_of(problem)), chosen.name,
               chosen.decision.channels, network_of(cluster), duration(chosen.decision.predicted_us),
               gbs(problem, chosen.decision.predicted_us));
    if (all) print_candidates(problem, verdicts);
  }
  print_limits(cluster, first.collective);
}

Status write_predictions(const DryCommunicator& cluster, const std::vector<Prediction>& predictions,
                         const std::string& file) {
  const check::Problem& first = predictions.front().problem;
  Json document = {{"version", TUTTI_VERSION},         {"collective", to_string(first.collective)},
                   {"type", to_string(first.type)},    {"op", to_string(first.op)},
                   {"nodes", cluster.node_count()},    {"ranks", cluster.rank_count()},
                   {"network", network_name(cluster)}, {"limits", cluster.limits(first.collective)},
                   {"results", Json::array()}};
  for (const auto& [problem, verdicts] : predictions) {
    Json row = {{"bytes", check::bytes_of(problem)}, {"count", problem.count}, {"candidates", Json::array()}};
    for (const tuner::Verdict& verdict : verdicts) row["candidates"].push_back(json_of(cluster, verdict));
    document["results"].push_back(std::move(row));
  }
  const std::string text = document.dump(2) + "\n";
  if (file != "-") return base::write_file(file, text);
  fmt::print("{}", text);
  return {};
}

}  // namespace tutti::tools
