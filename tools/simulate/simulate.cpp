// SPDX-License-Identifier: Apache-2.0
// `tutti simulate`: the predicted times of a job on machines that a file describes, without running it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "tools/check/problem.h"
#include "tools/cluster.h"
#include "tools/commands.h"
#include "tools/names.h"
#include "tools/simulate/report.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Asks the selector that every call of a job asks, with the limits of a job. The ranks are GPUs. On a machine without
GPUs, and with --set topology.host_ranks=gpu, they are host ranks. Sizes count as in `tutti bench`.

Examples:
  tutti simulate all_reduce --topology configs/topologies/hgx-h200.yaml
  tutti simulate all_gather --topology configs/topologies/hgx-h200.yaml --nodes 2 --min 64K --max 1G --factor 16
  tutti simulate all_reduce --topology configs/topologies/hgx-h200.yaml --min 1M --max 1M --all
  tutti topo show --export yaml > here.yaml; tutti simulate all_reduce --topology here.yaml --nodes 2 --ranks 4)";

struct Work {
  Cluster cluster;
  std::string collective;
  size_t min_bytes = 8;
  size_t max_bytes = size_t{64} << 20;
  size_t factor = 4;
  std::string type = "float32";
  std::string op = "sum";
  bool registered = false;
  bool all = false;
  std::string json;
};

/// The calls of the sizes. Two sizes whose calls have the same count are one call.
std::vector<check::Problem> problems_of(const Work& work, int rank_count) {
  std::vector<check::Problem> problems;
  for (size_t bytes = work.min_bytes; bytes <= work.max_bytes; bytes *= work.factor) {
    check::Problem problem;
    problem.collective = *collective_from(work.collective);
    problem.type = *data_type_from(work.type);
    problem.op = *reduce_op_from(work.op);
    problem.rank_count = rank_count;
    problem.count = 1;
    problem.count = std::max<size_t>(bytes / check::bytes_of(problem), 1);
    if (problems.empty() || problems.back().count != problem.count) problems.push_back(problem);
    if (bytes > work.max_bytes / work.factor) break;
  }
  return problems;
}

Status run(const Work& work) {
  if (work.min_bytes > work.max_bytes) return {Code::kInvalidArgument, "--max is less than --min"};
  TUTTI_ASSIGN(const auto cluster, work.cluster.create());
  TUTTI_TRY(cluster->takes());
  std::vector<Prediction> predictions;
  for (const check::Problem& problem : problems_of(work, static_cast<int>(cluster->rank_count()))) {
    const tuner::Question question{problem.collective, problem.type, problem.op, problem.count, work.registered};
    TUTTI_TRY(cluster->selector().choose(question).status());  // the error if no candidate is left
    TUTTI_ASSIGN(std::vector<tuner::Verdict> verdicts, cluster->selector().verdicts(question));
    predictions.push_back({problem, std::move(verdicts)});
  }
  if (!work.json.empty()) return write_predictions(*cluster, predictions, work.json);
  print_predictions(*cluster, predictions, work.all);
  return {};
}

void add_call_options(CLI::App& command, Work& work) {
  command.add_option("collective", work.collective, "The collective")
      ->required()
      ->check(one_of(all_names<Collective>()))
      ->option_text("COLLECTIVE");
  command.add_option("--min", work.min_bytes, "Smallest size (default 8)")->transform(kSize)->option_text("SIZE");
  command.add_option("--max", work.max_bytes, "Largest size (default 64M)")->transform(kSize)->option_text("SIZE");
  command.add_option("--factor", work.factor, "From one size to the next (default 4)")
      ->check(CLI::Range(2, 1 << 20))
      ->option_text("N");
  command.add_option("-t,--type", work.type, "Data type (default float32)")
      ->check(one_of(all_names<DataType>()))
      ->option_text("TYPE");
  command.add_option("-o,--op", work.op, "Reduction (default sum)")
      ->check(one_of(all_names<ReduceOp>()))
      ->option_text("OP");
  command.add_flag("--register", work.registered, "For outputs in registered buffers of GPUs");
}

}  // namespace

void add_simulate(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("simulate", "Predicted times of a job on machines that a file describes");
  command->footer(kFooter);
  const auto work = std::make_shared<Work>();
  add_call_options(*command, *work);
  work->cluster.add_options(*command);
  CLI::Option* all = command->add_flag("--all", work->all, "Print each candidate: its time, or why it is excluded");
  command->add_option("--json", work->json, "Write all candidates as JSON to a file (-: standard output)")
      ->excludes(all)
      ->option_text("FILE");
  command->callback([work, &exit_code] {
    const Status status = run(*work);
    exit_code = status.ok() ? kSuccess : fail(status);
  });
}

}  // namespace tutti::tools
