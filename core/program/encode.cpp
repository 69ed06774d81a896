// SPDX-License-Identifier: Apache-2.0
#include "program/encode.h"

#include <algorithm>
#include <vector>

#include "program/passes/number_messages.h"

namespace tutti::program {
namespace {

class Encoder {
 public:
  explicit Encoder(const Plan& plan) : plan_(plan) {}

  Program run() {
    program_.chunks = plan_.chunks;
    program_.input_blocks = plan_.input_blocks;
    program_.output_blocks = plan_.output_blocks;
    program_.scratch_chunks = plan_.scratch_chunks;
    program_.message_chunks = plan_.message_chunks;
    program_.ranges = plan_.ranges;
    for (const tutti_plan_step& step : plan_.steps) add(step);
    number_messages(program_);
    return std::move(program_);
  }

 private:
  void add(const tutti_plan_step& step) {
    tutti_program_step& out = program_.steps.emplace_back();
    out.source = step.source;
    out.destination = step.destination;
    out.flags = step.flags;
    if (step.gather_buffer == TUTTI_BUFFER_SCRATCH) out.flags |= TUTTI_STEP_TO_SCRATCH;
    split(step.source_chunk, out.source_block, out.source_chunk);
    split(step.destination_chunk, out.destination_block, out.destination_chunk);
    out.recv_begin = static_cast<uint32_t>(program_.peers.size());
    out.recv_count = step.recv_count;
    for (const tutti_plan_peer& peer : plan_.recv(step)) {
      if (!exchanges(out) && peer.rank < plan_.rank) ++out.own_position;
      add_peer(peer);
    }
    out.send_begin = static_cast<uint32_t>(program_.peers.size());
    out.send_count = step.send_count;
    std::vector<tutti_plan_peer> to(plan_.send(step).begin(), plan_.send(step).end());
    // So no two ranks begin with the same peer.
    const auto distance = [&](const tutti_plan_peer& peer) {
      return (peer.rank + plan_.rank_count - plan_.rank) % plan_.rank_count;
    };
    if (!exchanges(out)) {
      std::sort(to.begin(), to.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    }
    for (const tutti_plan_peer& peer : to) add_peer(peer);
  }

  void add_peer(const tutti_plan_peer& peer) {
    tutti_program_peer& out = program_.peers.emplace_back();
    out.rank = peer.rank;
    split(peer.chunk, out.block, out.chunk);
  }

  void split(uint32_t index, uint32_t& block, uint32_t& chunk) const {
    block = index / plan_.chunks;
    chunk = index % plan_.chunks;
  }

  const Plan& plan_;
  Program program_;
};

}  // namespace

Program encode(const Plan& plan) {
  return Encoder(plan).run();
}

tutti_program Program::view() const {
  return {.struct_size = sizeof(tutti_program),
          .chunks = chunks,
          .step_count = static_cast<uint32_t>(steps.size()),
          .peer_count = static_cast<uint32_t>(peers.size()),
          .steps = steps.data(),
          .peers = peers.data(),
          .ranges = ranges.empty() ? nullptr : ranges.data(),
          .input_blocks = input_blocks,
          .output_blocks = output_blocks,
          .scratch_chunks = scratch_chunks,
          .reserved = 0};
}

}  // namespace tutti::program
