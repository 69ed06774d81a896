// SPDX-License-Identifier: Apache-2.0
#include "tools/cluster.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/names.h"
#include "tools/session.h"

namespace tutti::tools {
namespace {

constexpr double kAssumedMbps = 100'000;
constexpr int kAssumedSm = 80;

/// Ok if no option describes devices: the machine of the file takes none of these options. `why`: "FILE describes ...".
Status refuse_assumptions(const Cluster& cluster, const std::string& why) {
  const auto refuse = [&](const char* option, const char* remedy) -> Status {
    return {
        Code::kInvalidArgument,
        fmt::format("{} is for files that give places only; {}; write {} into the file instead", option, why, remedy)};
  };
  if (!cluster.gpus.empty()) return refuse("--gpu", "its GPUs");
  if (cluster.mbps) return refuse("--net-mbps", "'speed' of its ports");
  if (cluster.sm) return refuse("--sm", "'sm' of its GPUs");
  return {};
}

Result<topology::Document> machine_of(const Cluster& cluster) {
  TUTTI_ASSIGN(topology::Document document, topology::Document::load(cluster.topology));
  if (!document.is_overlay()) {
    TUTTI_TRY(refuse_assumptions(cluster, fmt::format("{} describes its GPUs and ports", cluster.topology)));
    return document;
  }
  const topology::Document found = document;
  std::vector<topology::BusId> gpus;
  for (const std::string& text : cluster.gpus) {
    TUTTI_ASSIGN(const topology::BusId bus, topology::BusId::parse(text));
    gpus.push_back(bus);
  }
  const double mbps = cluster.mbps.value_or(kAssumedMbps);
  const int sm = cluster.sm.value_or(kAssumedSm);
  TUTTI_ASSIGN(const uint32_t count, topology::complete_overlay(document, gpus, mbps, sm));
  if (count == 0 && cluster.ranks_here > 0) {  // a machine without GPUs, for host ranks
    TUTTI_TRY(refuse_assumptions(cluster, fmt::format("{} gives no GPU", cluster.topology)));
    return found;
  }
  if (count == 0) {
    return Status(
        Code::kConfig,
        fmt::format("{} gives places only: no GPU, and no PCI class that says where one is; name the GPUs with "
                    "--gpu, ask for ranks on the host with --ranks, or use the file on its machine as topology.file",
                    cluster.topology));
  }
  fmt::print(stderr, "tutti: {} gives places only: {} GPUs (sm {}) and ports of {:g} Gb/s are assumed there\n",
             cluster.topology, count, sm, mbps / 1000);
  return document;
}

}  // namespace

void Cluster::add_options(CLI::App& command) {
  command.add_option("--topology", topology, "One machine: NCCL's topology XML, or our YAML")
      ->required()
      ->option_text("FILE");
  command.add_option("--nodes", nodes, "Number of such machines (default 1)")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N");
  command
      .add_option("--ranks", ranks_here,
                  "Ranks of each machine: on its GPUs in PCI order and in turn, or on the host where it has none")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  command.add_option("--gpu", gpus, "A file of places: these are GPUs, too")->delimiter(',')->option_text("BUSID");
  command.add_option("--net-mbps", mbps, "A file of places: speed of its ports in Mb/s (default 100000)")
      ->check(tools::kFromOne)
      ->option_text("MBPS");
  command.add_option("--sm", sm, "A file of places: compute capability × 10 of its GPUs (default 80)")
      ->check(CLI::Range(10, 200))
      ->option_text("SM");
  add_settings(command, config_file, settings);
}

Result<std::unique_ptr<communicator::DryCommunicator>> Cluster::create() const {
  communicator::DryCommunicator::Options options;
  TUTTI_ASSIGN(options.machine, machine_of(*this));
  options.node_count = nodes;
  options.ranks_here = ranks_here;
  TUTTI_ASSIGN(options.config, load_config(config_file, split_settings(settings)));
  return communicator::DryCommunicator::create(std::move(options));
}

}  // namespace tutti::tools
