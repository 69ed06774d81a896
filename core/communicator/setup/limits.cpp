// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/limits.h"
#include "communicator/setup/choices.h"
#include "communicator/setup/layouts.h"
#include "transport/message_hash.h"
#include "tutti/sdk/graph.h"

namespace tutti::communicator {
namespace {

// Channels where the configuration leaves them open. On the host a channel is a thread's work, and more than one pays
// only if asked for. On GPUs a channel is a thread block. Over a network, each channel of a GPU has connections of its
// own, which one thread of the host serves. More channels pay only for further ports. A port has two of them: search
// then finds trees that use all ports, and a thread block moves data more slowly than a port does.
constexpr uint32_t kHostChannels = 1;
constexpr uint32_t kGpuChannels = 64;
constexpr uint32_t kGpuNetChannels = 4;  // at least
constexpr uint32_t kGpuPortChannels = 2;
// Each channel has a connection and mostly a thread of its own, so that a further channel pays from fewer bytes on than
// between GPUs of one host.
constexpr uint64_t kRelayedBytes = 8 << 10;

/// `link`: the name in the settings, for example "shm".
SlotRequest slots_of(const config::Config& config, uint32_t kind, const std::string& link) {
  return {kind, static_cast<uint32_t>(config.integer(link + ".slots")), config.size_bytes(link + ".slot_size")};
}

/// Between GPUs of different hosts, a process carries the messages.
void fit_relays(tutti_protocol_properties& properties) {
  if (properties.flags_in_data == TUTTI_FLAGS_OWN) properties.links &= ~(1u << TUTTI_LINK_NETWORK);
  properties.channel_bytes[TUTTI_LINK_NETWORK] = std::min(properties.channel_bytes[TUTTI_LINK_P2P], kRelayedBytes);
}

/// Between GPUs of different hosts, the kernels at both ends are the same as between GPUs of one host.
void set_gpu_figures(const topology::Hardware& hardware, const Figures& figures, tuner::Protocol& protocol) {
  const topology::ProtocolFigures known = hardware.protocol(protocol.name, figures.sm);
  tutti_protocol_properties& properties = protocol.properties;
  double& latency_us = properties.latency_us[TUTTI_LINK_P2P];
  double& channel_gbs = properties.channel_gbs[TUTTI_LINK_P2P];
  latency_us = known.latency_us.value_or(latency_us);
  channel_gbs = known.channel_gbs.value_or(channel_gbs);
  properties.latency_us[TUTTI_LINK_NETWORK] += latency_us;
  if (properties.flags_in_data == TUTTI_FLAGS_NONE) {
    properties.latency_us[TUTTI_LINK_NETWORK] += figures.network_signal_us;
  }
}

Status check_data_of(const config::Config& config) {
  if (!config.boolean("check.data")) return {};
  if (transport::can_hash_messages()) return {};
  return {Code::kConfig, fmt::format("check.data is true ({}), but this build has no xxHash; install its headers "
                                     "(libxxhash-dev) and build again, or set check.data to false",
                                     config.origin("check.data"))};
}

/// The setting that keeps slots of networks in memory of the host; null: none.
const char* host_memory_setting(const config::Config& config) {
  for (const char* const setting : {"net.failover", "check.data"}) {
    if (config.boolean(setting)) return setting;
  }
  return config.text("net.direct") == "off" ? "net.direct" : nullptr;
}

/// Refuses a setting that demands slots in memory of GPUs, beside a setting that keeps slots in memory of the host.
Status check_memory_of_gpus(const config::Config& config, const char* wanted) {
  if (config.text("device") != "cuda" || config.text(wanted) != "on") return {};
  const char* const setting = host_memory_setting(config);
  if (setting == nullptr) return {};
  return {Code::kConfig, fmt::format("{} is on ({}), but with {} ({}) networks move memory of the host alone; "
                                     "set {} to auto",
                                     wanted, config.origin(wanted), setting, config.origin(setting), wanted)};
}

}  // namespace

Status check_transport(const config::Config& config, uint32_t nodes) {
  if (config.text("transport") != "shm" || nodes == 1) return {};
  return {Code::kConfig, fmt::format("transport is set to 'shm' ({}), but the ranks are on {} hosts; set it to auto",
                                     config.origin("transport"), nodes)};
}

Status check_network_settings(const config::Config& config) {
  TUTTI_TRY(check_data_of(config));
  TUTTI_TRY(check_memory_of_gpus(config, "net.direct"));
  return check_memory_of_gpus(config, "net.pxn");
}

bool uses_second_gpus(const config::Config& config) {
  return config.text("net.pxn") != "off" && host_memory_setting(config) == nullptr;
}

uint32_t max_channels(const config::Config& config, uint32_t device, bool uses_network, size_t ports) {
  if (const auto channels = static_cast<uint32_t>(config.integer("channels")); channels > 0) return channels;
  if (device == TUTTI_DEVICE_HOST) return kHostChannels;
  if (!uses_network) return kGpuChannels;
  const auto of_ports = static_cast<uint32_t>(std::min<size_t>(ports, kGpuChannels)) * kGpuPortChannels;
  return std::clamp(of_ports, kGpuNetChannels, kGpuChannels);
}

Result<Protocols> lay_out_protocols(const plugin::Registry& registry, const config::Config& config, uint32_t device,
                                    uint32_t channels) {
  Protocols protocols;
  TUTTI_ASSIGN(protocols.list, protocols_of(registry));
  if (device == TUTTI_DEVICE_CUDA) {
    for (tuner::Protocol& protocol : protocols.list) fit_relays(protocol.properties);
    TUTTI_TRY(ask_for_gpus(protocols.list, slots_of(config, TUTTI_LINK_P2P, "p2p")));
  }
  TUTTI_ASSIGN(protocols.shm, lay_out(protocols.list, slots_of(config, TUTTI_LINK_SHM, "shm"), channels));
  TUTTI_ASSIGN(protocols.net, lay_out(protocols.list, slots_of(config, TUTTI_LINK_NETWORK, "net"), channels));
  for (size_t i = 0; i < protocols.list.size(); ++i) {
    protocols.list[i].layouts[TUTTI_LINK_SHM] = protocols.shm.protocols[i];
    protocols.list[i].layouts[TUTTI_LINK_NETWORK] = protocols.net.protocols[i];
  }
  return protocols;
}

void set_limits(uint32_t device, uint32_t channels, const Links& links, const topology::Hardware& hardware,
                const Figures& figures, tutti_topology& topology, tuner::Choices& choices) {
  topology.min_channels = topology.max_channels = channels;
  choices.device = device;
  choices.on_gpu = device == TUTTI_DEVICE_CUDA;
  choices.back_end = device == TUTTI_DEVICE_CUDA ? &backend::gpu_back_end() : nullptr;
  choices.ranks = topology.rank_count;
  choices.nodes = topology.node_count;
  choices.max_channels = channels;
  if (device == TUTTI_DEVICE_CUDA) {
    for (tuner::Protocol& protocol : choices.protocols) set_gpu_figures(hardware, figures, protocol);
  }
  topology.memory_gbs = figures.memory_gbs;
  topology.processors = figures.rank_processors * sdk::most_ranks_of_node(topology);
  topology.switch_us = figures.switch_us;
  if (links.inside) {
    topology.bandwidth_gbs[*links.inside] = figures.inside_gbs;
    topology.latency_us[*links.inside] = figures.inside_latency_us;
    topology.gap_us[*links.inside] = figures.inside_gap_us;
    topology.processor_gbs[*links.inside] = figures.inside_processor_gbs;
    const bool has_neighbours = topology.node_count < topology.rank_count;
    if (has_neighbours || topology.rank_count == 1) choices.links |= 1u << *links.inside;
  }
  if (!links.has_network()) return;
  tuner::Network& first = choices.networks.front();
  topology.bandwidth_gbs[TUTTI_LINK_NETWORK] = first.gbs = figures.network_gbs;
  topology.latency_us[TUTTI_LINK_NETWORK] = first.latency_us = figures.network_latency_us;
  topology.gap_us[TUTTI_LINK_NETWORK] = figures.network_gap_us;
  topology.processor_gbs[TUTTI_LINK_NETWORK] = figures.network_processor_gbs;
  choices.links |= 1u << TUTTI_LINK_NETWORK;
}

}  // namespace tutti::communicator
