// SPDX-License-Identifier: Apache-2.0
// The α–β model of tuner-model.
#include "alpha_beta/model.h"

#include <gmock/gmock.h>

#include "tuner/selector.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using alpha_beta::Constants;
using alpha_beta::Model;

const NodeOfRank kOneNode(8, 0);

tutti_candidate candidate_of(double hops, double wire, uint32_t link = TUTTI_LINK_P2P) {
  tutti_candidate candidate = {};
  candidate.struct_size = sizeof(candidate);
  candidate.max_channels = 16;
  candidate.hops[link] = static_cast<uint32_t>(hops);
  candidate.wire[link] = wire;
  for (double& efficiency : candidate.protocol_efficiency) efficiency = 1.0;
  return candidate;
}

tutti_call call_of(uint64_t bytes) {
  tutti_call call = {};
  call.struct_size = sizeof(call);
  call.block_bytes = bytes;
  call.blocks = 1;
  return call;
}

tutti_candidate predict(tutti_candidate candidate, uint64_t bytes, const Constants& constants = {}) {
  Model(constants, topology_of(kOneNode)).predict(call_of(bytes), candidate);
  return candidate;
}

std::string reason(const tutti_candidate& candidate) {
  return {candidate.reason.data, candidate.reason.size};
}

TEST(TunerModel, AddsLatencyAndWireAndMemory) {
  // 350 GB/s over one hop of 1 µs; 350 MB take 1000 µs on the wire, and twice that in 350 GB/s of memory.
  tutti_candidate candidate = candidate_of(1, 1.0);
  candidate.protocol_latency_us[TUTTI_LINK_P2P] = 2;
  candidate.memory = 2.0;
  EXPECT_NEAR(predict(candidate, 350'000'000, {.memory_gbs = 350}).predicted_us, 3 + 1000 + 2000, 1e-6);
  candidate.protocol_efficiency[TUTTI_LINK_P2P] = 0.5;
  EXPECT_NEAR(predict(candidate, 350'000'000, {.memory_gbs = 350, .call_us = 7}).predicted_us, 10 + 2000 + 2000, 1e-6);
}

TEST(TunerModel, TakesTheSlowestOfItsLinks) {
  // 350 MB take 1000 µs over device links of 350 GB/s, and at the same time 7000 µs over a network of 50 GB/s.
  tutti_topology topology = topology_of(kOneNode);
  topology.bandwidth_gbs[TUTTI_LINK_NETWORK] = 50;
  topology.latency_us[TUTTI_LINK_NETWORK] = 5;
  tutti_candidate candidate = candidate_of(1, 1.0);
  candidate.hops[TUTTI_LINK_NETWORK] = 1;
  candidate.wire[TUTTI_LINK_NETWORK] = 1.0;
  Model({}, topology).predict(call_of(350'000'000), candidate);
  EXPECT_NEAR(candidate.predicted_us, 1 + 5 + 7000, 1e-6);
}

TEST(TunerModel, FewChannelsHaveLessThanTheLink) {
  tutti_candidate candidate = candidate_of(1, 1.0);
  candidate.max_channels = 2;
  EXPECT_NEAR(predict(candidate, 350'000'000, {.channel_gbs = 35}).predicted_us, 1 + 5000, 1e-6) << "2 × 35 GB/s";
}

TEST(TunerModel, MessagesBeyondTheHopsTakeAGapEach) {
  tutti_topology topology = topology_of(kOneNode);
  topology.gap_us[TUTTI_LINK_P2P] = 0.5;
  const auto with_messages = [&](uint32_t messages) {
    tutti_candidate candidate = candidate_of(2, 0);
    candidate.messages[TUTTI_LINK_P2P] = messages;
    Model({}, topology).predict(call_of(8), candidate);
    return candidate.predicted_us;
  };
  EXPECT_NEAR(with_messages(2), 2, 1e-6);
  EXPECT_NEAR(with_messages(5), 2 + 3 * 0.5, 1e-6);
  EXPECT_NEAR(with_messages(1), 2, 1e-6);
}

TEST(TunerModel, ProcessorsTakeTimeForAllMessagesOfAMachine) {
  tutti_topology topology = topology_of(kOneNode);
  topology.gap_us[TUTTI_LINK_P2P] = 0.5;
  topology.processor_gbs[TUTTI_LINK_P2P] = 10;
  tutti_candidate candidate = candidate_of(2, 1.0);
  candidate.machine_messages[TUTTI_LINK_P2P] = 32;
  candidate.machine_wire[TUTTI_LINK_P2P] = 4;
  const auto time = [&](double processors, uint64_t bytes, const tutti_candidate& of) {
    topology.processors = processors;
    tutti_candidate asked = of;
    Model({.call_us = 1}, topology).predict(call_of(bytes), asked);
    return asked.predicted_us;
  };
  EXPECT_NEAR(time(0, 0, candidate), 1 + 2, 1e-6) << "an unknown number of processors is no limit";
  EXPECT_NEAR(time(2, 0, candidate), 1 + 32 * 0.5 / 2, 1e-6);
  EXPECT_NEAR(time(8, 0, candidate), 1 + 2, 1e-6) << "the path of the messages is longer";
  EXPECT_NEAR(time(2, 1'000'000, candidate), 1 + (32 * 0.5 + 4 * 1e6 / 10e3) / 2, 1e-6);
  tutti_candidate half = candidate;
  half.protocol_efficiency[TUTTI_LINK_P2P] = 0.5;
  EXPECT_NEAR(time(2, 1'000'000, half), 1 + (32 * 0.5 + 4 * 1e6 / 5e3) / 2, 1e-6);
  tutti_candidate few = candidate;
  few.filled_chunks = 0.25;
  EXPECT_NEAR(time(1, 1'000'000, few), 1 + 8 * 0.5 + 4 * 1e6 / 10e3, 1e-6) << "empty chunks send no messages";
  tutti_candidate late = candidate;
  late.protocol_latency_us[TUTTI_LINK_P2P] = 0.2;
  EXPECT_NEAR(time(2, 0, late), 1 + 32 * (0.5 + 0.1) / 2, 1e-6) << "each end takes half of the protocol's latency";
  // Without sums, each of the eight ranks sends and receives as the busiest.
  tutti_candidate unsummed = candidate_of(2, 1.0);
  unsummed.messages[TUTTI_LINK_P2P] = 3;
  EXPECT_NEAR(time(1, 0, unsummed), 1 + 2 * 8 * 3 * 0.5, 1e-6);
  EXPECT_NEAR(time(1, 1'000'000, unsummed), 1 + 2 * 8 * (3 * 0.5 + 1e6 / 10e3), 1e-6);
}

/// Eight ranks. An end of a message takes 1 µs of a processor, and a switch takes 10 µs. Turns end before the message
/// is there.
TEST(TunerModel, EndsOfMessagesOverNetworksTakeASwitchIfRanksShareProcessors) {
  tutti_topology topology = topology_of(kOneNode);
  topology.switch_us = 10;
  topology.latency_us[TUTTI_LINK_NETWORK] = 1000;
  topology.gap_us[TUTTI_LINK_NETWORK] = 1;
  tutti_candidate candidate = candidate_of(1, 0, TUTTI_LINK_NETWORK);
  candidate.machine_messages[TUTTI_LINK_NETWORK] = 10'000;
  const auto end_us = [&](double processors, uint32_t collective) {
    topology.processors = processors;
    tutti_call call = call_of(0);
    call.collective = collective;
    tutti_candidate asked = candidate;
    Model({}, topology).predict(call, asked);
    return asked.predicted_us * processors / 10'000;
  };
  EXPECT_NEAR(end_us(8, TUTTI_ALL_REDUCE), 1, 1e-6) << "each rank has a processor";
  EXPECT_NEAR(end_us(6.4, TUTTI_ALL_REDUCE), 1 + 10 / 10.0, 1e-6) << "a quarter of the processors has a second rank";
  EXPECT_NEAR(end_us(4, TUTTI_ALL_REDUCE), 1 + 2 * 10 / 5.0, 1e-6);
  EXPECT_NEAR(end_us(1, TUTTI_ALL_REDUCE), 1 + 8 * 10 / 5.0, 1e-6)
      << "four times as many ranks, four times as many switches";
  EXPECT_NEAR(end_us(1, TUTTI_BROADCAST), 1, 1e-6) << "calls that follow each other share the switches";
  candidate = candidate_of(1, 0);
  candidate.machine_messages[TUTTI_LINK_P2P] = 10'000;
  topology.gap_us[TUTTI_LINK_P2P] = 1;
  EXPECT_NEAR(end_us(1, TUTTI_BROADCAST), 1, 1e-6);
  EXPECT_NEAR(end_us(1, TUTTI_ALL_REDUCE), 1 + 10 * 8 / 2.0 / 10'000, 1e-6) << "turns, and no switch for each end";
}

/// Eight ranks. A message over the network takes 5 µs, of which an end takes 2.
TEST(TunerModel, RanksThatExchangeMessagesSendBeforeTheyReceive) {
  tutti_topology topology = topology_of(kOneNode);
  topology.gap_us[TUTTI_LINK_NETWORK] = 2;
  tutti_candidate candidate = candidate_of(3, 0, TUTTI_LINK_NETWORK);
  candidate.filled_chunks = 1e-9F;  // messages take no time of processors
  const auto time = [&](double processors, uint32_t collective, uint32_t messages) {
    topology.processors = processors;
    tutti_call call = call_of(0);
    call.collective = collective;
    tutti_candidate asked = candidate;
    asked.messages[TUTTI_LINK_NETWORK] = messages;
    Model({}, topology).predict(call, asked);
    return asked.predicted_us;
  };
  EXPECT_NEAR(time(8, TUTTI_ALL_REDUCE, 3), 3 * (5 + 2), 1e-6);
  EXPECT_NEAR(time(8, TUTTI_ALL_REDUCE, 0), 3 * (5 + 2), 1e-6) << "as many messages as hops";
  EXPECT_NEAR(time(8, TUTTI_ALL_REDUCE, 2), 3 * 5, 1e-6) << "a tree";
  EXPECT_NEAR(time(8, TUTTI_BROADCAST, 3), 3 * 5, 1e-6) << "data flow one way";
  EXPECT_NEAR(time(0, TUTTI_ALL_REDUCE, 3), 3 * 5, 1e-6) << "the number of processors is unknown";
  EXPECT_NEAR(time(7, TUTTI_ALL_REDUCE, 3), 3 * 5, 1e-6) << "ranks share processors";
}

/// Eight ranks. The messages take 2 µs, and each turn takes 100 µs.
TEST(TunerModel, RanksThatPassDataOnWaitForPartsOfTurns) {
  tutti_topology topology = topology_of(kOneNode);
  topology.switch_us = 100;
  topology.bandwidth_gbs[TUTTI_LINK_SHM] = 8;
  tutti_candidate candidate = candidate_of(2, 0);
  candidate.protocol_efficiency[TUTTI_LINK_SHM] = 1;
  const auto added = [&](uint32_t hops, double processors) {
    tutti_call call = call_of(0);
    call.collective = TUTTI_BROADCAST;
    topology.processors = processors;
    tutti_candidate asked = candidate;
    asked.hops[TUTTI_LINK_SHM] = hops;
    Model({}, topology).predict(call, asked);
    return asked.predicted_us - 2;
  };
  EXPECT_NEAR(added(3, 0), 0, 1e-6) << "the number of processors is unknown";
  EXPECT_NEAR(added(3, 8), 0, 1e-6) << "each rank has a processor";
  EXPECT_NEAR(added(3, 5), 0, 1e-6) << "fewer than two ranks for each processor";
  EXPECT_NEAR(added(1, 2), 0, 1e-6) << "no rank passes data on";
  EXPECT_NEAR(added(3, 2), 2 * 3 * 100 / 8.0, 1e-6) << "two ranks wait for three ranks each";
}

/// Eight ranks. Each turn takes 100 µs, and the messages take 2 + 5 µs.
TEST(TunerModel, ReceiversWaitForTurnsOfRanksThatShareProcessors) {
  tutti_topology topology = topology_of(kOneNode);
  topology.switch_us = 100;
  tutti_candidate candidate = candidate_of(2, 0);
  candidate.hops[TUTTI_LINK_NETWORK] = 1;
  candidate.filled_chunks = 1e-9F;  // messages take no time of processors
  tutti_call call = call_of(0);
  constexpr double kFlight = 0.05;  // of the message over the network, in turns
  const auto turns = [&](double processors) {
    topology.processors = processors;
    tutti_candidate asked = candidate;
    Model({}, topology).predict(call, asked);
    return (asked.predicted_us - 7) / 100;
  };
  for (const uint32_t collective : {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL}) {
    call.collective = collective;
    EXPECT_EQ(turns(0), 0) << "the number of processors is unknown";
    EXPECT_EQ(turns(8), 0) << "each rank has a processor";
    EXPECT_NEAR(turns(6.4), 3 * 0.25 - kFlight, 1e-6) << "a quarter of the processors has a second rank";
    EXPECT_NEAR(turns(4), 3 - kFlight, 1e-6);
    EXPECT_NEAR(turns(1), 3 * 8 / 2.0 - kFlight, 1e-6);
  }
  candidate.messages[TUTTI_LINK_P2P] = 6;
  EXPECT_NEAR(turns(1), 2 * 6 + 4 - kFlight, 1e-6) << "the last of three messages takes three quarters of a round";
  EXPECT_NEAR(turns(4), 3 - kFlight, 1e-6);
  topology.switch_us = 4;
  EXPECT_NEAR(100 * turns(4), 2 * 4, 1e-6) << "the turn ends before the message over the network is there";
  topology.gap_us[TUTTI_LINK_NETWORK] = 2;
  EXPECT_NEAR(100 * turns(4), 2 * 4 + 1, 1e-6) << "the end of the receiver takes 2 of the 5 µs";
  topology.gap_us[TUTTI_LINK_NETWORK] = 6;
  EXPECT_NEAR(100 * turns(4), 3 * 4, 1e-6) << "no flight";
  topology.gap_us[TUTTI_LINK_NETWORK] = 0;
  topology.switch_us = 100;
  for (const uint32_t collective : {TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER, TUTTI_SEND_RECV}) {
    call.collective = collective;
    EXPECT_EQ(turns(1), 0) << "data flows one way";
  }
}

TEST(TunerModel, PrefersFewHopsForSmallDataAndLittleWireForLarge) {
  const tutti_candidate ring = candidate_of(14, 2.0 * 7 / 8);
  const tutti_candidate one_shot = candidate_of(1, 7);
  EXPECT_LT(predict(one_shot, 1 << 10).predicted_us, predict(ring, 1 << 10).predicted_us);
  EXPECT_GT(predict(one_shot, 1 << 30).predicted_us, predict(ring, 1 << 30).predicted_us);
}

TEST(TunerModel, TakesAsFewChannelsAsTheDataIsWorthAndTheLinkNeeds) {
  EXPECT_EQ(predict(candidate_of(1, 1), 8).channels, 1u);
  EXPECT_EQ(predict(candidate_of(1, 1), 3 << 16).channels, 3u);
  EXPECT_EQ(predict(candidate_of(1, 1), 1 << 30).channels, 8u) << "350 GB/s at 45 GB/s each";
  tutti_candidate narrow = candidate_of(1, 1);
  narrow.max_channels = 2;
  EXPECT_EQ(predict(narrow, 1 << 30).channels, 2u);
}

TEST(TunerModel, ExcludesWithAReason) {
  const tutti_candidate no_link = predict(candidate_of(1, 1, TUTTI_LINK_SHM), 8);
  EXPECT_LT(no_link.predicted_us, 0);
  EXPECT_THAT(reason(no_link), testing::HasSubstr("the topology has no links "));
  tutti_candidate protocol = candidate_of(1, 1);
  protocol.protocol_efficiency[TUTTI_LINK_P2P] = 0;
  EXPECT_THAT(reason(predict(protocol, 8)), testing::HasSubstr("the protocol does not work between GPUs"));
  tutti_candidate channels = candidate_of(1, 1);
  channels.max_channels = 0;
  EXPECT_THAT(reason(predict(channels, 8)), testing::HasSubstr("no channel"));
  tutti_candidate excluded = candidate_of(1, 1);
  excluded.predicted_us = -1;
  EXPECT_EQ(reason(predict(excluded, 8)), "") << "the host's exclusions are left alone";
  EXPECT_EQ(predict(excluded, 8).predicted_us, -1);
}

TEST(TunerModel, AlgorithmsCrossWhereTheModelSaysSo) {
  const Algorithm direct("direct");
  Connected connected(direct, kOneNode, 16);
  tutti_candidate one_shot = candidate_of(0, 0);
  tutti_candidate two_shot = candidate_of(0, 0);
  tuner::set_cost(connected.cost(TUTTI_ALL_REDUCE, 0), one_shot);
  tuner::set_cost(connected.cost(TUTTI_ALL_REDUCE, 1), two_shot);
  EXPECT_LT(predict(one_shot, 1 << 12).predicted_us, predict(two_shot, 1 << 12).predicted_us);
  EXPECT_GT(predict(one_shot, 1 << 24).predicted_us, predict(two_shot, 1 << 24).predicted_us);
}

}  // namespace
}  // namespace tutti::test
