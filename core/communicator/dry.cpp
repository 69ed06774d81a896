// SPDX-License-Identifier: Apache-2.0
#include "communicator/dry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "backend/limits.h"
#include "communicator/setup/choices.h"
#include "communicator/setup/figures.h"
#include "communicator/setup/limits.h"
#include "communicator/setup/plan_files.h"
#include "communicator/setup/ports.h"
#include "communicator/setup/racks.h"
#include "plugin/network_names.h"
#include "topology/check.h"
#include "topology/load.h"

namespace tutti::communicator {
namespace {

constexpr uint64_t kMaxRanks = uint64_t{1} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<std::string> works(const std::string& /*network*/) {
  return std::string();
}

bool any_on_gpus(const std::vector<tuner::Protocol>& protocols) {
  return std::any_of(protocols.begin(), protocols.end(), [](const tuner::Protocol& protocol) {
    return (protocol.properties.devices & TUTTI_DEVICE_CUDA) != 0;
  });
}

}  // namespace

DryCommunicator::DryCommunicator(config::Config config, const topology::Document& machine)
    : config_(std::move(config)) {
  const bool stand_in = config_.text("device") == "host" && config_.text("topology.host_ranks") == "gpu";
  device_ = stand_in || machine.gpus().empty() ? TUTTI_DEVICE_HOST : TUTTI_DEVICE_CUDA;
}

Result<std::unique_ptr<DryCommunicator>> DryCommunicator::create(Options options) {
  std::unique_ptr<DryCommunicator> made(new DryCommunicator(std::move(options.config), options.machine));
  TUTTI_ASSIGN(made->registry_, plugin::Registry::load(made->config_, false));
  TUTTI_ASSIGN(made->hardware_, hardware_of(made->config_));
  TUTTI_TRY(made->check_device(options.machine));
  topology::warn_of_errors(options.machine);
  TUTTI_TRY(made->describe(options.machine, options.node_count, options.ranks_here));
  tuner::Choices choices;
  TUTTI_TRY(made->limit(options.machine, choices));
  TUTTI_TRY(made->connect(choices));
  TUTTI_TRY(create_tuner(*made->registry_, made->topology_, choices));
  made->selector_ = std::make_unique<tuner::Selector>(made->config_, std::move(choices));
  TUTTI_TRY(made->selector_->check());
  return made;
}

Status DryCommunicator::check_device(const topology::Document& machine) const {
  if (config_.text("device") == "cuda" && !on_gpu()) {
    return {Code::kConfig, fmt::format("device is set to 'cuda' ({}), but {} has no GPU; set it to host, or describe "
                                       "the GPUs",
                                       config_.origin("device"), machine.source)};
  }
  return Status();
}

Status DryCommunicator::describe(const topology::Document& machine, uint32_t node_count, uint32_t ranks_here) {
  topology::BuildOptions build;
  if (ranks_here > 0) {
    // Ranks of a job on GPUs may share the GPUs. Host ranks that stand for GPUs need one each.
    TUTTI_ASSIGN(build.ranks, topology::places_of(machine, ranks_here, on_gpu()));
  } else {
    ranks_here = static_cast<uint32_t>(machine.gpus().size());  // build() refuses 0
  }
  if (uint64_t{ranks_here} * node_count > kMaxRanks) {
    return {Code::kInvalidArgument,
            fmt::format("{} machines of {} ranks are more than {} ranks; ask for fewer machines", node_count,
                        ranks_here, kMaxRanks)};
  }
  if (node_count > 1) TUTTI_TRY(choose_networks(ranks_here * node_count, node_count));
  build.networks = node_count > 1;
  build.hardware = &hardware_;
  build.second_gpus = uses_second_gpus(config_);
  if (!networks_.used.empty()) build.network = networks_.used.front();
  TUTTI_ASSIGN(topology::System system, topology::System::build(machine, build));
  system_ = std::make_unique<topology::System>(std::move(system));
  for (uint32_t rank = 0; rank < ranks_here * node_count; ++rank) node_of_rank_.push_back(rank / ranks_here);
  view_ = system_->view();
  topology_.struct_size = sizeof topology_;
  topology_.rank_count = ranks_here * node_count;
  topology_.node_count = node_count;
  topology_.node_of_rank = node_of_rank_.data();
  return {};
}

/// The networks of a job in which every network works.
Status DryCommunicator::choose_networks(uint32_t ranks, uint32_t node_count) {
  if (plugin::possible_networks(config_).empty()) {
    return {Code::kConfig, fmt::format("plugins.network is empty ({}), so {} machines cannot reach each other; name a "
                                       "network",
                                       config_.origin("plugins.network"), node_count)};
  }
  TUTTI_TRY(check_network_settings(config_));
  TUTTI_TRY(Racks::read(config_, {}).status());  // no host has a name here
  TUTTI_ASSIGN(networks_, communicator::choose_networks({&config_, ranks, node_count, on_gpu()}, works));
  return {};
}

/// As the setup of a job does. GPUs of one machine are taken to reach each other.
Status DryCommunicator::limit(const topology::Document& machine, tuner::Choices& choices) {
  if (config_.text("transport") == "net") {
    return {Code::kUnsupported,
            fmt::format("transport is set to 'net' ({}), but ranks of one machine share it here; set it to auto",
                        config_.origin("transport"))};
  }
  TUTTI_TRY(check_transport(config_, node_count()));
  Links links;
  links.inside = on_gpu() ? TUTTI_LINK_P2P : TUTTI_LINK_SHM;
  const uint32_t channels = max_channels(config_, device_, node_count() > 1, fastest_ports(*system_).size());
  if (node_count() > 1) add_networks(links, channels, choices);
  const Figures figures = figures_of(*system_, hardware_, device_, links, channels);
  if (links.has_network() && figures.network_gbs <= 0) {
    return {Code::kConfig,
            fmt::format("{} has no network port, so {} of it cannot reach each other; add one, or ask for one machine",
                        machine.source, node_count())};
  }
  TUTTI_ASSIGN(Protocols protocols, lay_out_protocols(*registry_, config_, device_, channels));
  choices.protocols = std::move(protocols.list);
  set_limits(device_, channels, links, hardware_, figures, topology_, choices);
  // Plugins that were built without kernels do not state which protocols run on GPUs.
  if (on_gpu() && !any_on_gpus(choices.protocols)) choices.device = 0;
  if (!takes().ok()) choices.back_end = nullptr;  // the plans of so many ranks are too many to check
  return {};
}

/// All networks have the bandwidth of the ports that the file describes.
void DryCommunicator::add_networks(Links& links, uint32_t channels, tuner::Choices& choices) const {
  choices.unused_networks = networks_.unused;
  for (const std::string& name : networks_.used) {
    tuner::Network network;
    network.gbs = topology::network_share_gbs(*system_, channels);
    network.latency_us = latency_of(hardware_.network(name), topology::network_latency_us(*system_));
    network.name = name;
    choices.networks.push_back(std::move(network));
  }
  links.network = choices.networks.front().name;
}

Status DryCommunicator::connect(tuner::Choices& choices) {
  const uint32_t ranks_here = topology_.rank_count / topology_.node_count;
  const Ports ports(topology_.node_count, ports_of(*system_, fastest_ports(*system_)));
  for (const program::AlgorithmPlugin& algorithm : algorithms_of(*registry_)) {
    Channels found;
    auto start = std::chrono::steady_clock::now();
    topology_.system = &view_;
    TUTTI_ASSIGN(found.graph, program::search(algorithm, topology_, 0));
    topology_.system = nullptr;
    found.search_seconds = seconds_since(start);

    std::vector<topology::NodeGraph> graphs;
    graphs.reserve(topology_.node_count);
    for (uint32_t node = 0; node < topology_.node_count; ++node) {
      graphs.push_back(found.graph.moved_to(node, node * ranks_here));
    }
    start = std::chrono::steady_clock::now();
    TUTTI_ASSIGN(Connected connected, connect_within(algorithm, topology_, graphs, ports));
    found.connect_seconds = seconds_since(start);
    found.reduced = std::move(connected.reduced);
    choices.algorithms.emplace_back(algorithm, std::move(connected.instance));
    channels_.push_back(std::move(found));
  }
  TUTTI_ASSIGN(const PlanFiles files, PlanFiles::read(config_));
  choices.proves_plans = config_.boolean("check.plans");
  if (choices.proves_plans) TUTTI_TRY(files.prove(topology_.rank_count));
  tutti_topology of_files = topology_;
  of_files.max_channels = std::min(of_files.max_channels, default_port_channels(ports));
  files.add_to(choices, of_files, true);
  channels_.resize(choices.algorithms.size());
  return {};
}

Status DryCommunicator::takes() const {
  return on_gpu() ? backend::gpu_back_end().takes(rank_count()) : Status();
}

std::vector<std::string> DryCommunicator::limits(Collective collective) const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].reduced.empty()) continue;
    lines.push_back(fmt::format("{}: {}", algorithms()[i].name, channels_[i].reduced));
  }
  if (!on_gpu()) return lines;  // the host's executor runs all plans
  if (const Status taken = takes(); !taken.ok()) lines.emplace_back(taken.text());
  for (uint32_t a = 0; a < algorithms().size(); ++a) {
    const auto& variants = algorithms()[a].variants;
    for (uint32_t v = 0; v < variants.size(); ++v) {
      if ((variants[v].collectives >> static_cast<uint32_t>(collective) & 1) == 0) continue;
      tutti_algorithm_cost cost{};
      cost.struct_size = sizeof cost;
      const int32_t code =
          algorithms()[a].ops->cost(algorithms()[a].instance.get(), static_cast<uint32_t>(collective), v, &cost);
      if (code == TUTTI_UNSUPPORTED) continue;  // on every device
      const std::string why = why_not(a, v, collective);
      if (why.empty()) continue;
      lines.push_back(fmt::format("{}{}{} does not run {} on GPUs: {}", algorithms()[a].name,
                                  variants[v].name.empty() ? "" : "/", variants[v].name, to_string(collective), why));
    }
  }
  return lines;
}

/// With too many ranks for a check of all plans, the first rank's plan on the first channel represents all plans.
std::string DryCommunicator::why_not(uint32_t algorithm, uint32_t variant, Collective collective) const {
  if (selector_->choices().back_end != nullptr) return selector_->why_not(algorithm, variant, collective);
  const auto first = plan({.algorithm = algorithm, .variant = variant}, collective, 0, 0);
  return std::string(first.ok() ? backend::gpu_back_end().runs(*first).text() : first.status().text());
}

Result<program::Plan> DryCommunicator::plan(const tuner::Decision& decision, Collective collective, uint32_t rank,
                                            uint32_t channel, uint32_t root) const {
  const tuner::Algorithm& algorithm = algorithms().at(decision.algorithm);
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(collective), rank, channel, root, decision.variant};
  return program::collect(*algorithm.ops, algorithm.instance.get(), request);
}

}  // namespace tutti::communicator
