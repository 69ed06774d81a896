// SPDX-License-Identifier: Apache-2.0
#include "program/passes/number_messages.h"

#include <algorithm>
#include <map>

namespace tutti::program {

void number_messages(Program& program) {
  std::map<uint32_t, uint32_t> received;  // messages so far, by the rank that sends them
  std::map<uint32_t, uint32_t> sent;      // by the rank that receives them
  const auto number = [&](std::span<tutti_program_peer> peers, std::map<uint32_t, uint32_t>& so_far) {
    for (tutti_program_peer& peer : peers) {
      peer.message = so_far[peer.rank]++;
      program.messages = std::max(program.messages, peer.message + 1);
    }
  };
  program.messages = 0;
  for (const tutti_program_step& step : program.steps) {
    number(program.recv(step), received);
    number(program.send(step), sent);
  }
}

void even_messages(Programs& programs) {
  uint32_t most = 0;
  for (const auto& channel : programs) {
    for (const Program& program : channel) most = std::max(most, program.messages);
  }
  for (auto& channel : programs) {
    for (Program& program : channel) program.messages = most;
  }
}

}  // namespace tutti::program
