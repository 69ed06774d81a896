// SPDX-License-Identifier: Apache-2.0
#include "alpha_beta/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/plugin/cuda.h"
#include "tutti/sdk/graph.h"

namespace tutti::alpha_beta {
namespace {

constexpr double kBytesPerUsOfGbs = 1e3;  // 1 GB/s is 1000 bytes per µs
/// By kind of link (TUTTI_LINK_*): the reasons for which a candidate cannot run.
constexpr const char* kLacking[TUTTI_LINK_COUNT] = {
    "the topology has no links by shared memory, which the algorithm's cost uses",
    "the topology has no links by a network, which the algorithm's cost uses",
    "the topology has no links between GPUs, which the algorithm's cost uses",
};
constexpr const char* kInvalid[TUTTI_LINK_COUNT] = {
    "the protocol does not work over shared memory, which the algorithm's cost uses",
    "the protocol does not work over a network, which the algorithm's cost uses",
    "the protocol does not work between GPUs, which the algorithm's cost uses",
};

constexpr double kEvenChannels = 32;  // for GPUs: eight groups of SMs with a cluster each

bool uses(const tutti_candidate& candidate, uint32_t link) {
  return candidate.hops[link] > 0 || candidate.wire[link] > 0;
}

/// For data that flow one way: the calls that share a turn of a rank which passes data on.
/// Source: broadcast and reduce of 4 and 8 ranks on 2 processors, docs/results.md.
constexpr double kCallsOfTurn = 8;

/// Whether each rank waits for data of all others. Else data flow one way: ranks that have sent go on to the next
/// call, and calls that follow each other share the turns.
bool all_wait_for_all(uint32_t collective) {
  return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER ||
         collective == TUTTI_ALL_TO_ALL;
}

}  // namespace

Model::Model(const Constants& constants, const tutti_topology& topology)
    : constants_(constants),
      processors_(topology.processors),
      switch_us_(topology.switch_us),
      most_ranks_(sdk::most_ranks_of_node(topology)) {
  if (topology.memory_gbs > 0) constants_.memory_gbs = topology.memory_gbs;
  std::copy_n(topology.bandwidth_gbs, TUTTI_LINK_COUNT, bandwidth_gbs_.begin());
  std::copy_n(topology.latency_us, TUTTI_LINK_COUNT, latency_us_.begin());
  std::copy_n(topology.gap_us, TUTTI_LINK_COUNT, gap_us_.begin());
  std::copy_n(topology.processor_gbs, TUTTI_LINK_COUNT, processor_gbs_.begin());
}

void Model::predict(const tutti_call& call, tutti_candidate& candidate) const {
  if (candidate.predicted_us < 0) return;
  if (const char* reason = obstacle(candidate); reason != nullptr) {
    candidate.predicted_us = -1;
    candidate.reason = {reason, std::strlen(reason)};
    return;
  }
  const double bytes = static_cast<double>(call.block_bytes) * static_cast<double>(call.blocks);
  candidate.channels = channels(candidate, bytes);
  const bool all_wait = all_wait_for_all(call.collective);
  candidate.predicted_us = microseconds(candidate, bytes, candidate.channels, all_wait);
  candidate.predicted_us += all_wait ? turns_microseconds(candidate) : relays_microseconds(candidate);
}

const char* Model::obstacle(const tutti_candidate& candidate) const {
  if (candidate.max_channels == 0) return "the algorithm found no channel";
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if (!uses(candidate, link)) continue;
    if (bandwidth_gbs_[link] <= 0) return kLacking[link];
    if (candidate.protocol_efficiency[link] <= 0) return kInvalid[link];
  }
  return nullptr;
}

/// The smallest number of channels that saturates the links in use (all channels, if each brings its own bandwidth),
/// and no more than the data is worth. On GPUs, whole clusters. If there are many channels, one or two clusters for
/// each group of SMs: with 52 channels instead of 64, all channels wait for the groups that have more of them.
uint32_t Model::channels(const tutti_candidate& candidate, double bytes) const {
  double useful = 1;
  double worth = constants_.channel_bytes;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if (!uses(candidate, link)) continue;
    const bool own = candidate.algorithm_gbs[link] > 0;
    useful =
        std::max(useful, own ? candidate.max_channels : std::ceil(bandwidth_gbs_[link] / channel_gbs(candidate, link)));
    if (candidate.channel_bytes[link] > 0) worth = static_cast<double>(candidate.channel_bytes[link]);
  }
  const bool on_gpus = uses(candidate, TUTTI_LINK_P2P);
  if (on_gpus && useful > kEvenChannels) useful = std::ceil(useful / kEvenChannels) * kEvenChannels;
  useful = std::clamp(std::floor(std::min(useful, bytes / worth)), 1.0, static_cast<double>(candidate.max_channels));
  const auto channels = static_cast<uint32_t>(useful);
  return on_gpus && channels > TUTTI_CUDA_CLUSTER ? channels / TUTTI_CUDA_CLUSTER * TUTTI_CUDA_CLUSTER : channels;
}

double Model::channel_gbs(const tutti_candidate& candidate, uint32_t link) const {
  return candidate.channel_gbs[link] > 0 ? candidate.channel_gbs[link] : constants_.channel_gbs;
}

/// The bandwidth of this number of channels together.
double Model::link_gbs(const tutti_candidate& candidate, uint32_t link, uint32_t channels) const {
  const double own = candidate.algorithm_gbs[link];
  const double gbs = own > 0 ? own * channels : bandwidth_gbs_[link];
  return std::min(gbs, channels * channel_gbs(candidate, link));
}

double Model::microseconds(const tutti_candidate& candidate, double bytes, uint32_t channels, bool all_wait) const {
  double latency_us = constants_.call_us + (all_wait ? exchanges_microseconds(candidate) : 0);
  double wire_us = 0;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if (!uses(candidate, link)) continue;
    latency_us += candidate.hops[link] * (latency_us_[link] + candidate.protocol_latency_us[link]);
    if (candidate.messages[link] > candidate.hops[link])
      latency_us += (candidate.messages[link] - candidate.hops[link]) * gap_us_[link];
    const double payload_gbs = link_gbs(candidate, link, channels) * candidate.protocol_efficiency[link];
    wire_us = std::max(wire_us, candidate.wire[link] * bytes / (payload_gbs * kBytesPerUsOfGbs));
  }
  const double path_us = latency_us + wire_us + candidate.memory * bytes / (constants_.memory_gbs * kBytesPerUsOfGbs);
  const double switch_us_of_end = all_wait ? end_switch_us() : 0;
  return std::max(path_us, constants_.call_us + processor_microseconds(candidate, bytes, switch_us_of_end));
}

/// The time in which a rank with a processor of its own sends a message over a network before it can receive one. In a
/// tree, a rank sends only after it has received: there the critical path has more hops than a rank has messages.
double Model::exchanges_microseconds(const tutti_candidate& candidate) const {
  const uint32_t hops = candidate.hops[TUTTI_LINK_NETWORK];
  const uint32_t messages = candidate.messages[TUTTI_LINK_NETWORK];  // 0: as many as hops
  const bool has_own_processor = processors_ > 0 && processors_ >= most_ranks_;
  if (!has_own_processor || (messages > 0 && messages < hops)) return 0;
  return hops * gap_us_[TUTTI_LINK_NETWORK];
}

/// The time in which the receivers of the critical path wait for turns of other ranks. A rank that sends is at any
/// place of the round, so a receiver waits for half of the round on average, and for the last of k senders k / (k + 1)
/// of it. If there are fewer than two ranks for each processor, only the ranks beyond the first of a processor take
/// turns. Turns during the flight of a message over a network delay nothing. The flight is the latency without the time
/// in which the receiver's end occupies the processor (the gap).
double Model::turns_microseconds(const tutti_candidate& candidate) const {
  if (processors_ <= 0) return 0;
  const double ranks = most_ranks_ / processors_;  // of one processor
  double waits_us = 0;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if (candidate.hops[link] == 0) continue;
    const double senders = std::max(1.0, static_cast<double>(candidate.messages[link]) / candidate.hops[link]);
    const double wait_us = std::min(ranks - 1, ranks * senders / (senders + 1)) * switch_us_;
    const double flight_us = link == TUTTI_LINK_NETWORK ? std::max(latency_us_[link] - gap_us_[link], 0.0) : 0;
    waits_us += candidate.hops[link] * std::max(wait_us - flight_us, 0.0);
  }
  return waits_us;
}

/// The time in which data that flow one way wait for the turns of ranks of the same machine that pass them on. A
/// receiver on another machine gets its turn while the message crosses the network. If there are fewer than two ranks
/// for each processor, a rank that passes data on can have a processor of its own.
double Model::relays_microseconds(const tutti_candidate& candidate) const {
  if (processors_ <= 0 || candidate.hops[TUTTI_LINK_SHM] <= 1) return 0;
  const double ranks = most_ranks_ / processors_;  // of one processor
  if (ranks < 2) return 0;
  return (candidate.hops[TUTTI_LINK_SHM] - 1) * (ranks - 1) * switch_us_ / kCallsOfTurn;
}

/// The processor time of switches for an end of a message over a network. For r ranks of a processor, 2 (r - 1) / 5
/// switches if r is less than 2, else r / 5: looks that find nothing grow with the ranks. Source: 1 to 8 ranks per
/// processor, docs/results.md.
double Model::end_switch_us() const {
  if (processors_ <= 0) return 0;
  const double ranks = most_ranks_ / processors_;  // of one processor
  return (ranks < 2 ? 2 * std::max(ranks - 1, 0.0) : ranks) / 5 * switch_us_;
}

/// The time in which the processors of a machine send and receive the messages of its ranks; 0: they are no limit.
double Model::processor_microseconds(const tutti_candidate& candidate, double bytes, double switch_us_of_end) const {
  if (processors_ <= 0) return 0;
  double work_us = 0;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if (!uses(candidate, link)) continue;
    const double all_ranks = 2.0 * most_ranks_;  // each sends and receives
    const double messages = candidate.machine_messages[link] > 0
                                ? candidate.machine_messages[link]
                                : all_ranks * std::max(candidate.messages[link], candidate.hops[link]);
    const double wire =
        candidate.machine_wire[link] > 0 ? candidate.machine_wire[link] : all_ranks * candidate.wire[link];
    const double filled = candidate.filled_chunks > 0 ? candidate.filled_chunks : 1;
    const double switch_us = link == TUTTI_LINK_NETWORK ? switch_us_of_end : 0;
    work_us += messages * filled * (gap_us_[link] + switch_us + candidate.protocol_latency_us[link] / 2);
    if (processor_gbs_[link] <= 0) continue;
    const double payload_gbs = processor_gbs_[link] * candidate.protocol_efficiency[link];
    work_us += wire * bytes / (payload_gbs * kBytesPerUsOfGbs);
  }
  return work_us / processors_;
}

}  // namespace tutti::alpha_beta
