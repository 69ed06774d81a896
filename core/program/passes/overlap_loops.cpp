// SPDX-License-Identifier: Apache-2.0
#include "program/passes/overlap_loops.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace tutti::program {
namespace {

constexpr uint32_t kMostStages = 64;

/// Finds the earliest stages: a step receives data that was sent in an earlier wave. Later steps of the program are in
/// no earlier stage, as they may need the step's results in memory.
class Stages {
 public:
  explicit Stages(std::span<Program> programs) : programs_(programs) {}

  /// Returns false where they are too many.
  bool find() {
    for (bool later = true; later;) {
      later = false;
      for (uint32_t rank = 0; rank < programs_.size(); ++rank) {
        later = advance(rank) || later;
        if (stages_ > kMostStages) return false;
      }
    }
    return true;
  }
  uint32_t stages() const { return stages_; }
  /// Whether the messages of each connection are received so many waves after they were sent. Else a receiver that says
  /// with which it is done, by a number, would speak of some that are still to be read.
  bool lags_are_even() const {
    for (const Program& program : programs_) {
      std::map<uint32_t, uint32_t> lags;  // by sender
      for (const tutti_program_step& step : program.steps) {
        for (const tutti_program_peer& from : program.recv(step)) {
          if (lags.try_emplace(from.rank, from.lag).first->second != from.lag) return false;
        }
      }
    }
    return true;
  }
  uint32_t lag() const {
    uint32_t most = 0;
    for (const Program& program : programs_) {
      for (const tutti_program_peer& peer : program.peers) most = std::max(most, peer.lag);
    }
    return most;
  }

 private:
  using Message = std::tuple<uint32_t, uint32_t, uint32_t>;  ///< sender, receiver, number on the connection

  /// Returns whether the rank sends a message later than was known.
  bool advance(uint32_t rank) {
    Program& program = programs_[rank];
    bool later = false;
    uint32_t stage = 0;
    for (tutti_program_step& step : program.steps) {
      const std::span<tutti_program_peer> from = program.recv(step);
      uint32_t received = stage;
      for (const tutti_program_peer& peer : from) {
        received = std::max(received, sent_[{peer.rank, rank, peer.message}] + 1);
      }
      for (tutti_program_peer& peer : from) peer.lag = received - sent_[{peer.rank, rank, peer.message}];
      step.recv_stage = received;
      step.stage = exchanges(step) ? stage : received;
      for (const tutti_program_peer& peer : program.send(step)) {
        uint32_t& known = sent_[{rank, peer.rank, peer.message}];
        later = later || known != step.stage;
        known = step.stage;
      }
      stage = received;
      stages_ = std::max(stages_, stage + 1);
    }
    return later;
  }

  std::span<Program> programs_;
  std::map<Message, uint32_t> sent_;  // the stage
  uint32_t stages_ = 1;
};

bool has_strands(const Programs& programs) {
  return std::any_of(programs.begin(), programs.end(), [](const std::vector<Program>& channel) {
    return std::any_of(channel.begin(), channel.end(), [](const Program& program) { return program.strand_count > 0; });
  });
}

void drop_stages(Program& program) {
  for (tutti_program_step& step : program.steps) step.stage = step.recv_stage = 0;
  for (tutti_program_peer& peer : program.peers) peer.lag = 0;
}

}  // namespace

uint32_t chunk_slots(const Program& program, const tutti_slot_layout& layout) {
  const uint32_t messages = program.stages == 1 ? std::max(program.room, 1u) : (program.lag + 1) * program.messages;
  return std::min(layout.chunk_slots, layout.slot_count / messages);
}

void overlap_loops(Programs& programs, const tutti_slot_layout& layout) {
  Program common;  // the common part of all programs
  for (const auto& channel : programs) {
    for (const Program& program : channel) common.messages = std::max(common.messages, program.messages);
  }
  bool overlaps = layout.overlaps != 0 && common.messages > 0 && !has_strands(programs);
  for (auto& channel : programs) {
    if (!overlaps) break;
    Stages stages(channel);
    overlaps = stages.find() && stages.lags_are_even();
    common.stages = std::max(common.stages, stages.stages());
    common.lag = std::max(common.lag, stages.lag());
  }
  overlaps = overlaps && chunk_slots(common, layout) > 0;
  for (auto& channel : programs) {
    for (Program& program : channel) {
      if (!overlaps) drop_stages(program);
      program.stages = overlaps ? common.stages : 1;
      program.lag = overlaps ? common.lag : 0;
    }
  }
}

}  // namespace tutti::program
