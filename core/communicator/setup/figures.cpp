// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/trust.h"
#include "plugin/names.h"
#include "topology/load.h"
#include "tutti/plugin/protocol.h"
#include "tutti/plugin/topology.h"

namespace tutti::communicator {
namespace {

constexpr const char* kKey = "hardware.file";

/// GB/s between ranks whose GPUs reach each other. Ranks that share a GPU copy within its memory, which reads and
/// writes.
double peer_gbs(const topology::System& machine, const std::vector<uint32_t>& ranks) {
  if (ranks.size() < 2) return topology::memory_gbs(machine) / 2;  // no rank to reach
  const auto on_gpu = [&](uint32_t node) { return machine.nodes()[node].type == TUTTI_NODE_GPU; };
  if (std::ranges::all_of(ranks, on_gpu)) return topology::widest_path_gbs(machine);
  return topology::memory_gbs(machine) / 2 / static_cast<double>(ranks.size());
}

/// The lowest compute capability × 10 of the GPUs of ranks.
uint32_t oldest_chip(const topology::System& machine) {
  uint32_t sm = 0;
  for (const uint32_t node : machine.rank_nodes()) {
    const uint32_t chip = machine.nodes()[node].chip;
    sm = sm == 0 ? chip : std::min(sm, chip);
  }
  return sm;
}

void set_between_gpus(const topology::System& machine, bool reach_each_other, Figures& figures) {
  const std::vector<uint32_t> ranks = machine.rank_nodes();
  for (const uint32_t node : ranks) {
    const topology::GpuFigures& gpu = machine.gpu(node);
    const double latency_us = reach_each_other ? gpu.latency_us : gpu.staged_latency_us;
    figures.inside_latency_us = std::max(figures.inside_latency_us, latency_us);
    figures.inside_gap_us = std::max(figures.inside_gap_us, gpu.gap_us);
    const bool is_first = figures.inside_gbs == 0;
    figures.inside_gbs = is_first ? gpu.staged_gbs : std::min(figures.inside_gbs, gpu.staged_gbs);
  }
  if (reach_each_other) figures.inside_gbs = peer_gbs(machine, ranks);
}

/// Host ranks move their data themselves. Both ends of a message in shared memory move its bytes. If every rank has a
/// processor, only the messages of a network whose `processor_gbs` is known take time of processors.
void set_processors(const topology::System& machine, const topology::Hardware& hardware, double network_processor_gbs,
                    double part, Figures& figures) {
  const auto ranks = static_cast<double>(machine.rank_nodes().size());
  const double processors = machine.processors() * part;
  if (ranks <= 0 || processors <= 0) return;
  const topology::MemoryFigures memory = hardware.memory();
  const bool takes_turns = ranks > processors && memory.switch_us > 0;
  if (!takes_turns && network_processor_gbs <= 0) return;
  figures.rank_processors = std::min(processors / ranks, 1.0);
  figures.inside_processor_gbs = 2 * figures.inside_gbs;
  if (!takes_turns) return;
  figures.inside_gap_us = memory.gap_us;
  figures.switch_us = memory.switch_us;
}

/// Checks the names of the plugins whose figures a file states.
Status check_plugins(const topology::Hardware& table, const config::Config& config) {
  for (const topology::Hardware::PluginEntry& entry : table.plugins_of_file()) {
    const plugin::Kind kind = entry.section == "networks" ? plugin::Kind::kNetwork : plugin::Kind::kProtocol;
    TUTTI_TRY(plugin::check_name(config, kind, entry.plugin, entry.place, entry.section,
                                 topology::Hardware::built_in().entries(entry.section)));
  }
  return {};
}

}  // namespace

Result<topology::Hardware> hardware_of(const config::Config& config) {
  const std::string& file = config.text(kKey);
  if (!file.empty()) {
    TUTTI_TRY(config::check_trust(file, "the file of hardware figures", config.text("plugins.trust")));
  }
  auto table = topology::Hardware::load(file);
  if (table.ok()) TUTTI_TRY(check_plugins(*table, config));
  if (table.status().code() != Code::kNotFound) return table;
  return table.status().with_context(fmt::format("{} ({})", kKey, config.origin(kKey)));
}

double latency_of(const topology::NetworkFigures& network, double claimed_us) {
  return network.file_has_latency || claimed_us <= 0 ? network.latency_us : claimed_us;
}

Figures figures_of(const topology::System& machine, const topology::Hardware& hardware, uint32_t device,
                   const Links& links, uint32_t channels, double part) {
  Figures figures;
  const bool on_gpu = device == TUTTI_DEVICE_CUDA;
  if (on_gpu) {
    figures.memory_gbs = topology::memory_gbs(machine);
    figures.sm = oldest_chip(machine);
  }
  if (links.inside && on_gpu) {
    set_between_gpus(machine, *links.inside == TUTTI_LINK_P2P, figures);
  } else if (links.inside) {
    figures.inside_gbs = hardware.memory().gbs;
    figures.inside_latency_us = hardware.memory().latency_us;
  }
  const topology::NetworkFigures network =
      links.has_network() ? hardware.network(links.network) : topology::NetworkFigures{};
  if (!on_gpu) set_processors(machine, hardware, network.processor_gbs, part, figures);
  if (!links.has_network()) return figures;
  figures.network_gbs = topology::network_share_gbs(machine, channels);
  figures.network_latency_us = latency_of(network, topology::network_latency_us(machine));
  figures.network_gap_us = network.gap_us;
  figures.network_signal_us = network.signal_us;
  if (!on_gpu) figures.network_processor_gbs = network.processor_gbs;
  return figures;
}

Figures slowest(std::span<const Figures> machines) {
  Figures worst = machines.front();
  for (const Figures& each : machines) {
    for (double Figures::*gbs :
         {&Figures::inside_gbs, &Figures::network_gbs, &Figures::memory_gbs, &Figures::inside_processor_gbs,
          &Figures::network_processor_gbs, &Figures::rank_processors}) {
      worst.*gbs = std::min(worst.*gbs, each.*gbs);
    }
    for (double Figures::*us : {&Figures::inside_latency_us, &Figures::inside_gap_us, &Figures::network_latency_us,
                                &Figures::network_gap_us, &Figures::network_signal_us, &Figures::switch_us}) {
      worst.*us = std::max(worst.*us, each.*us);
    }
    worst.sm = std::min(worst.sm, each.sm);
  }
  return worst;
}

}  // namespace tutti::communicator
