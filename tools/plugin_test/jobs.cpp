// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/jobs.h"

#include <fmt/format.h>

#include <stdexcept>

#include "topology/document.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint32_t kMostMachines = 4;  // with one rank each
constexpr uint32_t kSeveralChannels = 3;

Job in_blocks(uint32_t ranks, uint32_t nodes, uint32_t channels) {
  Job job;
  job.node_count = nodes;
  job.channels = channels;
  job.on_gpus = ranks % 2 == 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) job.node_of_rank.push_back(rank * nodes / ranks);
  return job;
}

/// Four GPUs that NVLink joins with each other, and two ports.
std::string machine_text() {
  constexpr int kGpus = 4;
  std::string text =
      "tutti_topology: 1\ncpu:\n  - numaid: 0\n    affinity: \"ff\"\n    arch: x86_64\n    vendor: GenuineIntel\n"
      "    familyid: 6\n    modelid: 106\n    pci:\n";
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    if (gpu % 2 == 0) {
      text += fmt::format(
          "      - busid: \"0000:{0}0:00.0\"\n        class: 0x060400\n        link_speed: 16.0 GT/s PCIe\n"
          "        link_width: 16\n        pci:\n"
          "          - {{busid: \"0000:{0}4:00.0\", class: 0x020700, link_speed: 16.0 GT/s PCIe, "
          "link_width: 16, nic: {{net: {{name: net{1}, dev: {1}, speed: 100000, gdr: 1, guid: {2}}}}}}}\n",
          gpu + 1, gpu / 2, gpu + 1);
    }
    std::string links;
    for (int other = 0; other < kGpus; ++other) {
      if (other == gpu) continue;
      links += fmt::format("{}{{target: \"0000:{}{}:00.0\", count: 2}}", links.empty() ? "" : ", ", other / 2 * 2 + 1,
                           other % 2 + 1);
    }
    text += fmt::format(
        "          - {{busid: \"0000:{}{}:00.0\", class: 0x030200, link_speed: 16.0 GT/s PCIe, "
        "link_width: 16, gpu: {{dev: {}, sm: 80, gdr: 1, nvlink: [{}]}}}}\n",
        gpu / 2 * 2 + 1, gpu % 2 + 1, gpu, links);
  }
  return text;
}

/// The system graph of machine `node`, whose GPUs have the ranks from `first` on.
std::shared_ptr<const topology::System> machine(uint32_t first, bool has_network) {
  const auto document = topology::Document::read_yaml(machine_text(), "the kit's machine");
  if (!document.ok()) throw std::logic_error("the kit's machine is wrong: " + document.status().to_string());
  topology::BuildOptions options;
  options.networks = has_network;
  for (uint32_t gpu = 0; gpu < 4; ++gpu) {
    const auto bus = topology::BusId::parse(fmt::format("0000:{}{}:00.0", gpu / 2 * 2 + 1, gpu % 2 + 1));
    options.ranks.push_back({first + gpu, true, *bus, -1});
  }
  auto system = topology::System::build(*document, options);
  if (!system.ok()) throw std::logic_error("the kit's machine is wrong: " + system.status().to_string());
  return std::make_shared<const topology::System>(*std::move(system));
}

Job of_machines(uint32_t nodes) {
  constexpr uint32_t kGpus = 4, kChannels = 8;
  Job job;
  job.node_count = nodes;
  job.channels = kChannels;
  job.on_gpus = true;
  for (uint32_t node = 0; node < nodes; ++node) {
    job.node_of_rank.insert(job.node_of_rank.end(), kGpus, node);
    job.systems.push_back(machine(node * kGpus, nodes > 1));
  }
  return job;
}

Job in_turns(uint32_t ranks, uint32_t nodes) {
  Job job = in_blocks(ranks, nodes, 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) job.node_of_rank[rank] = rank % nodes;
  return job;
}

}  // namespace

tutti_topology Job::topology() const {
  tutti_topology out{};
  out.struct_size = sizeof out;
  out.rank_count = rank_count();
  out.node_count = node_count;
  out.min_channels = systems.empty() ? channels : 1;
  out.max_channels = channels;
  out.node_of_rank = node_of_rank.data();
  const uint32_t inside = on_gpus ? TUTTI_LINK_P2P : TUTTI_LINK_SHM;
  out.bandwidth_gbs[inside] = on_gpus ? 350 : 20;
  out.latency_us[inside] = 1;
  out.gap_us[inside] = 0.5;
  if (node_count > 1) {
    out.bandwidth_gbs[TUTTI_LINK_NETWORK] = 50;
    out.latency_us[TUTTI_LINK_NETWORK] = 5;
    out.gap_us[TUTTI_LINK_NETWORK] = 1;
  }
  return out;
}

std::string Job::name() const {
  const bool turns = node_count > 1 && node_of_rank.size() > node_count && node_of_rank[1] == 1 &&
                     node_of_rank[0] == 0 && node_of_rank.back() != node_count - 1;
  return fmt::format("{} rank{} on {} machine{}{}{}, {} channel{}", rank_count(), rank_count() == 1 ? "" : "s",
                     node_count, node_count == 1 ? "" : "s", turns ? " in turns" : "",
                     systems.empty() ? "" : " of GPUs", channels, channels == 1 ? "" : "s");
}

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 33u}) {
    for (const uint32_t nodes : {1u, 2u, 3u}) {
      if (nodes <= ranks) jobs.push_back(in_blocks(ranks, nodes, nodes > 1 ? kSeveralChannels : 1));
    }
    if (ranks == kMostMachines) jobs.push_back(in_blocks(ranks, ranks, 1));
    if (ranks == 5 || ranks == 9) jobs.push_back(in_turns(ranks, 2));
    if (ranks == 8) jobs.push_back(in_blocks(ranks, 1, kSeveralChannels));
  }
  for (const uint32_t nodes : {1u, 2u, 3u}) jobs.push_back(of_machines(nodes));
  return jobs;
}

std::vector<Job> few_jobs() {
  return {in_blocks(1, 1, 1), in_blocks(2, 1, 1), in_blocks(5, 2, kSeveralChannels), in_blocks(8, 1, kSeveralChannels),
          of_machines(2)};
}

}  // namespace tutti::tools::plugin_test
