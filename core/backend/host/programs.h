// SPDX-License-Identifier: Apache-2.0
// Plans made ready: requested from the algorithm, verified, encoded as programs, and joined to this rank's connections.
// Kept for as long as the communicator lives.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "backend/call_key.h"
#include "backend/host/fabric.h"
#include "backend/plans.h"
#include "program/plan.h"
#include "program/program.h"
#include "tuner/selector.h"

namespace tutti::backend {

/// One channel's program with its connections, one per entry of program.peers.
struct ChannelProgram {
  program::Program program;
  tutti_program view{};
  std::vector<tutti_connection*> connections;
};

struct Program {
  std::vector<std::unique_ptr<ChannelProgram>> channels;
  uint64_t payload_bytes = 0;  ///< limit of a slice
  uint32_t chunk_slots = 1;    ///< slices a chunk may have
};

class Programs {
 public:
  Programs(uint32_t rank, const Plans& plans, const tuner::Choices& choices, Fabric& fabric)
      : rank_(rank), plans_(plans), choices_(choices), fabric_(fabric) {}

  /// The program of a collective. Verified for the way it is used before it is returned. One thread at a time.
  Result<const Program*> collective(const tuner::Decision& decision, Collective collective, uint32_t root,
                                    bool in_place);
  /// The one-step program that sends to, or receives from, a peer. Of the decision, protocol and network count.
  Result<const Program*> message(const tuner::Decision& decision, uint32_t peer, bool receives);

 private:
  struct MessageKey {
    uint32_t protocol;
    uint32_t network;
    uint32_t peer;
    bool receives;
    auto operator<=>(const MessageKey&) const = default;
  };
  Result<transport::Key> key(uint32_t channel, uint32_t peer, const tuner::Decision& decision, bool sends) const;
  Status check_fan(size_t peers, const tuner::Decision& decision) const;
  Status add_channel(Program& program, const program::Plan& plan, const tuner::Decision& decision);
  Program empty_program(uint32_t protocol) const;
  Result<uint32_t> proof_slots(uint32_t protocol, uint32_t message_chunks) const;

  uint32_t rank_;
  const Plans& plans_;
  const tuner::Choices& choices_;
  Fabric& fabric_;
  std::map<CallKey, std::unique_ptr<Program>> programs_;
  std::map<MessageKey, std::unique_ptr<Program>> messages_;
};

}  // namespace tutti::backend
