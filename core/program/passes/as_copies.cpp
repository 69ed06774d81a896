// SPDX-License-Identifier: Apache-2.0
#include "program/passes/as_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "program/passes/alias.h"
#include "tutti/plugin/cuda.h"

namespace tutti::program {
namespace {

/// The sends and receives of a rank, by peer and in order, as blocks of its input and its output.
struct Traffic {
  struct Send {
    uint32_t peer;
    uint32_t block;
    uint32_t number;  ///< on this connection
  };
  std::vector<Send> sends;
  std::map<uint32_t, std::vector<uint32_t>> receives;
  std::optional<Copy> own;
};

class Reader {
 public:
  explicit Reader(const Plan& plan) : plan_(plan) {}

  Result<Traffic> read() {
    if (reduces(plan_.collective)) return refuse("it reduces");
    if (plan_.chunks != 1) return refuse("it cuts blocks");
    if (const std::string beyond = beyond_version_1(plan_); !beyond.empty()) return refuse("it has " + beyond);
    for (const tutti_plan_step& step : plan_.steps) TUTTI_TRY(read(step));
    return std::move(traffic_);
  }

 private:
  Status refuse(std::string_view why) const {
    return {Code::kUnsupported, fmt::format("the plan of rank {} is more than copies: {}", plan_.rank, why)};
  }

  Status read(const tutti_plan_step& step) {
    const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    if (!gathers && !scatters && step.recv_count > 0) return read_receive(step);
    for (const tutti_plan_peer& peer : plan_.recv(step)) traffic_.receives[peer.rank].push_back(peer.chunk);
    if (step.source == TUTTI_BUFFER_NONE) return {};
    if (step.source != TUTTI_BUFFER_INPUT) return refuse("it sends or copies what it keeps");
    if (step.destination != TUTTI_BUFFER_NONE) {
      if (traffic_.own) return refuse("it copies several blocks of its own");
      traffic_.own = Copy{plan_.rank, step.source_chunk, step.destination_chunk};
    }
    add_sends(step, scatters);
    return {};
  }

  /// A step that folds: of one message it only writes it down.
  Status read_receive(const tutti_plan_step& step) {
    if (step.recv_count > 1 || step.source != TUTTI_BUFFER_NONE) return refuse("it combines what it receives");
    if (step.send_count > 0) return refuse("it passes on what it receives");
    if (step.destination == TUTTI_BUFFER_NONE) return refuse("it drops what it receives");
    traffic_.receives[plan_.recv(step).front().rank].push_back(step.destination_chunk);
    return {};
  }

  /// Orders the peers of a step without an order of its own by their distance, so that no two ranks begin with the same
  /// peer.
  void add_sends(const tutti_plan_step& step, bool scatters) {
    const auto peers = plan_.send(step);
    std::vector<tutti_plan_peer> to(peers.begin(), peers.end());
    const auto distance = [&](const tutti_plan_peer& peer) {
      return (peer.rank + plan_.rank_count - plan_.rank) % plan_.rank_count;
    };
    if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0) {
      std::sort(to.begin(), to.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    }
    for (const tutti_plan_peer& peer : to) {
      traffic_.sends.push_back({peer.rank, scatters ? peer.chunk : step.source_chunk, sent_[peer.rank]++});
    }
  }

  const Plan& plan_;
  Traffic traffic_;
  std::map<uint32_t, uint32_t> sent_;
};

/// The memory of block `input` of the input, in place. A block is one chunk, so if the block of the input shares memory
/// with a block of the output, the result is the number of the latter.
uint32_t place_of_input(const Plan& plan, uint32_t input) {
  return place_of(plan, true, TUTTI_BUFFER_INPUT, input);
}

/// In place: no peer may write data that this rank still has to send.
Status check_in_place(const Plan& plan, const Traffic& traffic) {
  for (const Traffic::Send& send : traffic.sends) {
    const uint32_t block = place_of_input(plan, send.block);
    for (const auto& [peer, blocks] : traffic.receives) {
      if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) continue;
      return {Code::kUnsupported,
              fmt::format("in place, rank {} receives in block {} what it has to send", plan.rank, block)};
    }
  }
  return {};
}

}  // namespace

Result<Copies> copies(std::span<const Plan> plans, uint32_t rank, bool in_place) {
  std::vector<Traffic> traffic;
  for (const Plan& plan : plans) {
    TUTTI_ASSIGN(traffic.emplace_back(), Reader(plan).read());
    if (in_place) TUTTI_TRY(check_in_place(plan, traffic.back()));
  }
  Copies out;
  out.own = traffic[rank].own;
  if (in_place && out.own && place_of_input(plans[rank], out.own->from) == out.own->to) out.own.reset();
  for (const auto& [peer, blocks] : traffic[rank].receives) out.peers.push_back(peer);
  for (const Traffic::Send& send : traffic[rank].sends) {
    const auto& receives = traffic[send.peer].receives;
    const auto from_here = receives.find(rank);
    if (from_here == receives.end() || from_here->second.size() <= send.number) {
      return Status(Code::kInternal,
                    fmt::format("rank {} has no receive for message {} of rank {}", send.peer, send.number, rank));
    }
    out.list.push_back({send.peer, send.block, from_here->second[send.number]});
  }
  if (out.list.size() > TUTTI_CUDA_MAX_COPIES) {
    return Status(Code::kUnsupported, fmt::format("the plan has {} copies, but a launch takes at most {}",
                                                  out.list.size(), TUTTI_CUDA_MAX_COPIES));
  }
  return out;
}

}  // namespace tutti::program
