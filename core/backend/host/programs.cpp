// SPDX-License-Identifier: Apache-2.0
#include "backend/host/programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/encode.h"
#include "program/passes/zero_copy.h"

namespace tutti::backend {
Program Programs::empty_program(uint32_t protocol) const {
  Program program;
  program.payload_bytes = fabric_.payload_bytes(protocol, choices_.links);
  program.chunk_slots = fabric_.chunk_slots(protocol, choices_.links);
  return program;
}

/// The connection to or from a peer. Between machines the algorithm may have assigned network devices to the channel.
Result<transport::Key> Programs::key(uint32_t channel, uint32_t peer, const tuner::Decision& decision,
                                     bool sends) const {
  const bool message = decision.algorithm == tuner::kNoAlgorithm;
  transport::Key key{peer, message ? transport::Traffic::kPointToPoint : transport::Traffic::kCollective, channel,
                     decision.protocol};
  // The devices are those of the first network.
  if (message || !sends || fabric_.uses_shm(peer) || decision.network != 0) return key;
  TUTTI_ASSIGN(const transport::Ports ports, plans_.ports(decision.algorithm, channel, peer));
  key.device = ports.device;
  key.peer_device = ports.peer_device;
  return key;
}

/// A protocol has room for as many peers of a step as it states.
Status Programs::check_fan(size_t peers, const tuner::Decision& decision) const {
  const tuner::Protocol& protocol = choices_.protocols[decision.protocol];
  if (peers <= protocol.properties.max_fan) return {};
  const std::string algorithm =
      decision.algorithm == tuner::kNoAlgorithm ? "a message" : "algorithm '" + plans_.name_of(decision) + "'";
  return {Code::kInternal,
          fmt::format("a step of {} has {} peers, and protocol '{}' takes {}; the cost of an algorithm "
                      "states its most peers (fan, ALG-11): choose another algorithm",
                      algorithm, peers, protocol.name, protocol.properties.max_fan)};
}

Status Programs::add_channel(Program& program, const program::Plan& plan, const tuner::Decision& decision) {
  auto channel = std::make_unique<ChannelProgram>();
  channel->program = program::encode(plan);
  channel->view = channel->program.view();
  for (const tutti_program_step& step : channel->program.steps) {
    TUTTI_TRY(check_fan(std::max(channel->program.recv(step).size(), channel->program.send(step).size()), decision));
    for (const tutti_program_peer& peer : channel->program.recv(step)) {
      TUTTI_ASSIGN(const transport::Key from, key(plan.channel, peer.rank, decision, false));
      channel->connections.push_back(fabric_.receiver(from, decision.network));
    }
    for (const tutti_program_peer& peer : channel->program.send(step)) {
      TUTTI_ASSIGN(const transport::Key to, key(plan.channel, peer.rank, decision, true));
      channel->connections.push_back(fabric_.sender(to, decision.network));
    }
  }
  program.channels.push_back(std::move(channel));
  return {};
}

/// The messages of any length that a connection holds. A message fills at most as many slots as a chunk may. A message
/// of very many chunks fills more, as each of its chunks begins on a line.
Result<uint32_t> Programs::proof_slots(uint32_t protocol, uint32_t message_chunks) const {
  const uint64_t of_message = transport::slots_of_message(
      fabric_.payload_bytes(protocol, choices_.links), fabric_.chunk_slots(protocol, choices_.links), message_chunks);
  const uint32_t slots = fabric_.message_count(protocol, choices_.links);
  if (of_message <= slots) return static_cast<uint32_t>(slots / of_message);
  return Status(Code::kUnsupported,
                fmt::format("a message of {} chunks takes {} slots of protocol '{}', but a connection has {}; choose "
                            "another protocol, or larger slots",
                            message_chunks, of_message, choices_.protocols[protocol].name, slots));
}

Result<const Program*> Programs::collective(const tuner::Decision& decision, Collective collective, uint32_t root,
                                            bool in_place) {
  auto& program = programs_[{decision, collective, root, in_place, false}];
  if (program != nullptr) return program.get();
  std::vector<program::Plan> plans;
  uint32_t message_chunks = 1;
  for (uint32_t channel = 0; channel < decision.channels; ++channel) {
    TUTTI_ASSIGN(plans.emplace_back(), plans_.request(decision, collective, rank_, channel, root));
    message_chunks = std::max(message_chunks, plans.back().message_chunks);
  }
  TUTTI_ASSIGN(const uint32_t slots, proof_slots(decision.protocol, message_chunks));
  TUTTI_TRY(plans_.verify(decision, collective, root, in_place, slots));
  auto made = std::make_unique<Program>(empty_program(decision.protocol));
  for (program::Plan& plan : plans) {
    program::mark_stable(plan, in_place);
    TUTTI_TRY(add_channel(*made, plan, decision));
  }
  program = std::move(made);
  return program.get();
}

Result<const Program*> Programs::message(const tuner::Decision& decision, uint32_t peer, bool receives) {
  auto& program = messages_[{decision.protocol, decision.network, peer, receives}];
  if (program != nullptr) return program.get();
  program::Plan plan;
  plan.collective = Collective::kSendRecv;
  plan.rank_count = plans_.rank_count();
  plan.rank = rank_;
  plan.peers = {{peer, 0}};
  tutti_plan_step step{};
  step.source = receives ? TUTTI_BUFFER_NONE : TUTTI_BUFFER_INPUT;
  step.destination = receives ? TUTTI_BUFFER_OUTPUT : TUTTI_BUFFER_NONE;
  step.recv_count = receives ? 1 : 0;
  step.send_count = receives ? 0 : 1;
  plan.steps = {step};
  program::mark_stable(plan, false);
  auto made = std::make_unique<Program>(empty_program(decision.protocol));
  TUTTI_TRY(add_channel(*made, plan, {.protocol = decision.protocol, .network = decision.network}));
  program = std::move(made);
  return program.get();
}

}  // namespace tutti::backend
