// SPDX-License-Identifier: Apache-2.0
#include "program/passes/direct_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "program/passes/alias.h"

namespace tutti::program {
namespace {

bool has(const tutti_program_step& step, uint32_t flags) {
  return (step.flags & flags) != 0;
}

/// In place, chunks share no less memory than otherwise.
uint32_t shared_place_of(const Plan& plan, uint32_t buffer, uint32_t chunk) {
  return place_of(plan, plan.collective != Collective::kAllToAll, buffer, chunk);
}

/// The part of a rank's loop that is one unit: a folding step, or one send, one receive or the copy of an exchange.
struct Move {
  uint32_t chunk = 0;  ///< chunk of a block: determines the length of its messages
  std::vector<tutti_program_peer*> receives;
  std::vector<tutti_program_peer*> sends;
  std::vector<uint32_t> touched;    ///< places, of the own memory
  std::optional<uint32_t> written;  ///< the chunk of the output to which the received data is written unchanged
};

/// The moves of a loop in their order. Peers hear of a move when all before it have been made.
class Moves {
 public:
  Moves(const Plan& plan, Program& program) : plan_(plan), program_(program) {
    for (const tutti_program_step& step : program.steps) {
      if (exchanges(step)) {
        add_exchange(step);
      } else {
        add_fold(step);
      }
    }
  }
  std::vector<Move> take() { return std::move(moves_); }

 private:
  void add_fold(const tutti_program_step& step) {
    Move& move = moves_.emplace_back();
    const bool by_destination = step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
    move.chunk = by_destination ? step.destination_chunk : step.source_chunk;
    for (tutti_program_peer& peer : program_.recv(step)) move.receives.push_back(&peer);
    for (tutti_program_peer& peer : program_.send(step)) move.sends.push_back(&peer);
    touch(move, step.source, step.source_block, step.source_chunk);
    touch(move, step.destination, step.destination_block, step.destination_chunk);
    const bool passes_on = step.recv_count == 1 && step.source == TUTTI_BUFFER_NONE && !has(step, TUTTI_STEP_FINAL);
    if (passes_on && step.destination == TUTTI_BUFFER_OUTPUT) {
      move.written = index(step.destination_block, step.destination_chunk);
    }
  }

  void add_exchange(const tutti_program_step& step) {
    for (tutti_program_peer& peer : program_.send(step)) {
      Move& move = moves_.emplace_back();
      move.sends.push_back(&peer);
      const bool scatters = has(step, TUTTI_STEP_SCATTER);
      move.chunk = scatters ? peer.chunk : step.source_chunk;
      touch(move, step.source, scatters ? peer.block : step.source_block, move.chunk);
    }
    if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
      Move& move = moves_.emplace_back();
      touch(move, step.source, step.source_block, step.source_chunk);
      touch(move, step.destination, step.destination_block, step.destination_chunk);
    }
    for (tutti_program_peer& peer : program_.recv(step)) {
      Move& move = moves_.emplace_back();
      move.chunk = peer.chunk;
      move.receives.push_back(&peer);
      const bool to_scratch = has(step, TUTTI_STEP_TO_SCRATCH);
      if (!to_scratch) move.written = index(peer.block, peer.chunk);
      touch(move, to_scratch ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT, peer.block, peer.chunk);
    }
  }

  uint32_t index(uint32_t block, uint32_t chunk) const { return block * plan_.chunks + chunk; }
  void touch(Move& move, uint32_t buffer, uint32_t block, uint32_t chunk) const {
    if (buffer == TUTTI_BUFFER_NONE) return;
    move.touched.push_back(shared_place_of(plan_, buffer, index(block, chunk)));
  }

  const Plan& plan_;
  Program& program_;
  std::vector<Move> moves_;
};

/// By rank: so many of its moves are known to have been made. (Mattern: Virtual time and global states of distributed
/// systems, 1989.)
using Clock = std::vector<uint32_t>;

class Marking {
 public:
  Marking(std::span<const Plan> plans, std::span<Program> programs) : plans_(plans) {
    for (size_t rank = 0; rank < plans.size(); ++rank) moves_.push_back(Moves(plans[rank], programs[rank]).take());
  }

  /// Chunk by chunk: if a chunk has data, so have the earlier chunks of the block, but later chunks may be empty, and
  /// their messages then signal nothing.
  Status run() {
    for (uint32_t chunk = 0; chunk < plans_[0].chunks; ++chunk) {
      messages_.clear();
      for (bool more = true; more;) {
        more = false;
        for (uint32_t rank = 0; rank < moves_.size(); ++rank) {
          TUTTI_ASSIGN(const bool learned, follow(rank, chunk));
          more = more || learned;
        }
      }
      for (uint32_t rank = 0; rank < moves_.size(); ++rank) mark(rank, chunk);
    }
    return {};
  }

 private:
  struct Message {
    tutti_program_peer* sent = nullptr;  ///< the sender's entry
    Clock known;                         ///< when it is sent
  };
  Message& message(uint32_t from, uint32_t to, uint32_t number) { return messages_[{from, to, number}]; }

  /// Returns whether more is known than before of when a message is sent.
  Result<bool> follow(uint32_t rank, uint32_t last_chunk) {
    bool more = false;
    Clock known(moves_.size());
    for (const Move& move : moves_[rank]) {
      ++known[rank];
      if (move.chunk > last_chunk) continue;
      for (const tutti_program_peer* peer : move.receives) {
        const Clock& sent = message(peer->rank, rank, peer->message).known;
        // The message was sent after this move, which waits for it. The clocks would grow without end.
        if (!sent.empty() && sent[rank] >= known[rank]) {
          return Status(Code::kInvalidArgument,
                        fmt::format("deadlock: rank {} waits for a message that rank {} sends after this wait", rank,
                                    peer->rank));
        }
        for (size_t i = 0; i < sent.size(); ++i) known[i] = std::max(known[i], sent[i]);
      }
      for (tutti_program_peer* peer : move.sends) {
        Message& to = message(rank, peer->rank, peer->message);
        to.sent = peer;
        if (to.known == known) continue;
        to.known = known;
        more = true;
      }
    }
    return more;
  }

  void mark(uint32_t rank, uint32_t chunk) {
    for (size_t i = 0; i < moves_[rank].size(); ++i) {
      const Move& move = moves_[rank][i];
      if (!move.written || move.chunk != chunk) continue;
      tutti_program_peer& received = *move.receives.front();
      const Message& from = message(received.rank, rank, received.message);
      if (from.sent == nullptr || !is_free(rank, i, *move.written, from.known)) continue;
      received.to_output = from.sent->to_output = 1;
      from.sent->output_block = *move.written / plans_[rank].chunks;
      from.sent->output_chunk = *move.written % plans_[rank].chunks;
    }
  }

  /// Whether a rank with this knowledge knows that the moves before `end` no longer use a chunk of the output.
  bool is_free(uint32_t rank, size_t end, uint32_t chunk, const Clock& known) const {
    const uint32_t place = shared_place_of(plans_[rank], TUTTI_BUFFER_OUTPUT, chunk);
    for (size_t i = known[rank]; i < end; ++i) {
      const auto& touched = moves_[rank][i].touched;
      if (std::find(touched.begin(), touched.end(), place) != touched.end()) return false;
    }
    return true;
  }

  std::span<const Plan> plans_;
  std::vector<std::vector<Move>> moves_;                                  // by rank
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Message> messages_;  // by sender, receiver and number
};

}  // namespace

Status store_directly(std::span<const Plan> plans, std::span<Program> programs) {
  return Marking(plans, programs).run();
}

SlotPeers slot_peers(const Program& program) {
  SlotPeers peers;
  const auto add = [](std::span<const tutti_program_peer> of, std::set<uint32_t>& ranks) {
    for (const tutti_program_peer& peer : of) {
      if (peer.to_output == 0) ranks.insert(peer.rank);
    }
  };
  for (const tutti_program_step& step : program.steps) {
    add(program.recv(step), peers.senders);
    add(program.send(step), peers.receivers);
  }
  return peers;
}

bool uses_outputs(const Program& program) {
  return std::any_of(program.peers.begin(), program.peers.end(),
                     [](const tutti_program_peer& peer) { return peer.to_output != 0; });
}

}  // namespace tutti::program
