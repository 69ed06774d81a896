// SPDX-License-Identifier: Apache-2.0
// `tutti search`: the choices of a cluster of machines that a file describes, without any of its devices.
#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "communicator/dry.h"
#include "program/describe.h"
#include "program/file/file.h"
#include "tools/cluster.h"
#include "tools/commands.h"
#include "tools/names.h"
#include "tools/search/report.h"

namespace tutti::tools {
namespace {

using communicator::DryCommunicator;

constexpr const char* kFooter = R"(
Runs search, connect and the selector for N machines of that kind in this process; ranks are GPUs in PCI order.

Examples:
  tutti search --topology configs/topologies/hgx-h200.yaml
  tutti search --topology configs/topologies/hgx-h200.yaml --nodes 2048
  tutti search --topology dgx.xml --nodes 4 --plan plan.yaml --set algorithm=tree
  tutti search --topology dgx.xml --nodes 256 --collective all_gather --rank 1234   # prints the plan of this rank
  tutti search --topology partial.xml --gpu 0000:10:1c.0,0000:10:1d.0   # a file that gives places only)";

/// Steps of all plans written to one file, at most: a larger file is not useful.
constexpr uint64_t kMaxWrittenSteps = 4'000'000;

struct Work {
  Cluster cluster;
  std::string collective;  ///< empty: the first one that a job can run
  std::string plan_file;
  int64_t rank = -1;  ///< -1: print no plan
  uint32_t channel = 0;
  size_t plan_bytes = size_t{64} << 20;
  bool all_channels = false;
};

/// The collective that --collective names, or the first one that a job can run. all_reduce is the first of all.
Collective collective_of(const Work& work, const DryCommunicator& cluster) {
  if (!work.collective.empty()) return *collective_from(work.collective);
  for (uint32_t i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (cluster.selector().choose(question_of(cluster, collective, work.plan_bytes)).ok()) return collective;
  }
  return Collective::kAllReduce;
}

/// The plans that a call of --plan-size bytes would run.
struct Plans {
  const Work& work;
  const DryCommunicator& cluster;
  Collective collective;
  tuner::Decision decision = {};

  Status choose() {
    TUTTI_ASSIGN(decision, cluster.selector().choose(question_of(cluster, collective, work.plan_bytes)));
    if (decision.algorithm == tuner::kNoAlgorithm) {
      return {Code::kInvalidArgument, fmt::format("{} has no plan; name another collective", to_string(collective))};
    }
    const uint32_t channels = cluster.algorithms()[decision.algorithm].channels;
    if (work.channel >= channels) {
      return {Code::kInvalidArgument, fmt::format("{} has {} channels here; there is no channel {}",
                                                  name_of(cluster, decision), channels, work.channel)};
    }
    return {};
  }

  Result<program::Plan> of_rank(uint32_t rank) const { return cluster.plan(decision, collective, rank, work.channel); }

  Status print() const {
    if (work.rank >= cluster.rank_count()) {
      return {Code::kInvalidArgument,
              fmt::format("there are {} ranks; there is no rank {}", cluster.rank_count(), work.rank)};
    }
    TUTTI_ASSIGN(const program::Plan plan, of_rank(static_cast<uint32_t>(work.rank)));
    fmt::print("\n{} of {}: {}\n{}\n", to_string(collective), bytes_text(work.plan_bytes), name_of(cluster, decision),
               program::to_text(plan));
    return {};
  }

  Status write() const {
    const tuner::Algorithm& algorithm = cluster.algorithms()[decision.algorithm];
    program::PlanFile file{algorithm.name, algorithm.variants[decision.variant].name, {}};
    uint64_t steps = 0;
    for (uint32_t rank = 0; rank < cluster.rank_count(); ++rank) {
      TUTTI_ASSIGN(program::Plan plan, of_rank(rank));
      steps += plan.steps.size();
      if (steps > kMaxWrittenSteps) {
        return {Code::kInvalidArgument, fmt::format("the plans of all {} ranks have more than {} steps; print one "
                                                    "rank's with --rank, or choose another algorithm with --set "
                                                    "algorithm=tree",
                                                    cluster.rank_count(), kMaxWrittenSteps)};
      }
      file.plans.push_back(std::move(plan));
    }
    TUTTI_TRY(program::write_file(file, work.plan_file));
    fmt::print("\nwrote {}: {} of {}, {}, channel {}, {} ranks, {} steps\n", work.plan_file, to_string(collective),
               bytes_text(work.plan_bytes), name_of(cluster, decision), work.channel, file.plans.size(), steps);
    return {};
  }
};

Status run(const Work& work) {
  TUTTI_ASSIGN(const std::unique_ptr<DryCommunicator> cluster, work.cluster.create());
  const Collective collective = collective_of(work, *cluster);
  print_cluster(work.cluster.topology, *cluster);
  for (size_t i = 0; i < cluster->algorithms().size(); ++i) {
    TUTTI_TRY(print_channels(*cluster, i, work.all_channels));
  }
  TUTTI_TRY(print_predictions(*cluster, collective));
  print_limits(*cluster, collective);
  if (work.rank >= 0 || !work.plan_file.empty()) {
    Plans plans = {work, *cluster, collective};
    TUTTI_TRY(plans.choose());
    if (work.rank >= 0) TUTTI_TRY(plans.print());
    if (!work.plan_file.empty()) TUTTI_TRY(plans.write());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("\npeak memory of this process: {} MiB\n", usage.ru_maxrss / 1024);
  return {};
}

}  // namespace

void add_search(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("search", "Channels, loads and predictions of a cluster, from a file");
  command->footer(kFooter);
  const auto work = std::make_shared<Work>();
  work->cluster.add_options(*command);
  command->add_flag("--channels", work->all_channels, "Print every channel, not only different ones");
  command->add_option("--collective", work->collective, "Predict this collective (default all_reduce)")
      ->check(one_of(all_names<Collective>()))
      ->option_text("COLLECTIVE");
  command
      ->add_option("--plan", work->plan_file,
                   "Write the plans of all ranks for one call: JSON if it ends with .json, else YAML")
      ->option_text("FILE");
  command->add_option("--rank", work->rank, "Print the plan of this rank for one call")
      ->check(tools::kFromZero)
      ->option_text("RANK");
  CLI::Option* size =
      command->add_option("--plan-size", work->plan_bytes, "--plan, --rank: bytes of the call (default 64M)");
  size->transform(kSize)->option_text("SIZE");
  CLI::Option* channel = command->add_option("--channel", work->channel, "--plan, --rank: the channel (default 0)");
  channel->option_text("N");
  command->parse_complete_callback([command, size, channel] {
    if (command->count("--plan") + command->count("--rank") > 0) return;
    for (const CLI::Option* option : {size, channel}) {
      if (option->count() > 0) throw CLI::RequiresError(option->get_name(), "--plan or --rank");
    }
  });
  command->callback([work, &exit_code] {
    const Status status = run(*work);
    exit_code = status.ok() ? kSuccess : fail(status);
  });
}

}  // namespace tutti::tools
