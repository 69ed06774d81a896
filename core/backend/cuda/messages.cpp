// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/messages.h"

#include <algorithm>

#include "backend/cuda/stripes.h"

namespace tutti::backend {

/// The messages of one launch: at most one message per peer and direction, all of one protocol and network.
struct GpuMessages::Round {
  size_t number;  ///< how many messages of the group go before on the same connection
  uint32_t protocol;
  uint32_t network;
  uint32_t part;  ///< messages between ranks of about the same distance, as many as a launch holds
  auto operator<=>(const Round&) const = default;
};

Result<std::span<const GpuCall>> GpuMessages::prepare(std::span<const Call> calls) {
  find_shape(calls);
  TUTTI_ASSIGN(Batch* const batch, kept_.get(shape_, [&] { return make(calls); }));
  fill(calls, *batch);
  return std::span<const GpuCall>(batch->launches);
}

void GpuMessages::find_shape(std::span<const Call> calls) {
  shape_.clear();
  for (const Call& call : calls) {
    if (left_out(call)) continue;
    shape_.push_back(static_cast<uint64_t>(call.root) << 16 | static_cast<uint64_t>(call.type) << 1 |
                     (call.receives ? 1 : 0));
    shape_.push_back(call.count);
  }
}

Result<std::unique_ptr<GpuMessages::Batch>> GpuMessages::make(std::span<const Call> calls) {
  struct Launch {
    std::vector<backend::Message> messages;
    std::vector<size_t> members;  // their indices in Batch::indices
  };
  auto batch = std::make_unique<Batch>();
  std::map<std::pair<int, bool>, size_t> before;
  std::map<Round, Launch> launches;
  for (const Call& call : calls) {
    if (left_out(call)) continue;
    TUTTI_ASSIGN(const tuner::Decision decision,
                 programs_.selector().choose({call.collective, call.type, call.reduction.op, call.count}));
    const backend::Message message = {call.receives ? TUTTI_CUDA_RECEIVE : TUTTI_CUDA_SEND,
                                      static_cast<uint32_t>(call.root), call.count * size_of(call.type),
                                      programs_.stripes_for(decision.protocol, decision.channels)};
    const uint32_t part = part_of(message, rank_, programs_.rank_count());
    Launch& launch = launches[{before[{call.root, call.receives}]++, decision.protocol, decision.network, part}];
    launch.messages.push_back(message);
    launch.members.push_back(batch->indices.size());
    batch->indices.emplace_back();
  }
  for (const auto& [round, launch] : launches) {
    const auto index = static_cast<uint32_t>(batch->launches.size());
    GpuCall& call = batch->launches.emplace_back();
    TUTTI_TRY(programs_.begin_messages(round.protocol, round.network, call));
    TUTTI_ASSIGN(const std::vector<uint32_t> indices, programs_.lay_out(launch.messages, call));
    for (size_t i = 0; i < indices.size(); ++i) batch->indices[launch.members[i]] = {index, indices[i]};
  }
  for (GpuCall& launch : batch->launches) TUTTI_TRY(programs_.offer(launch));
  for (GpuCall& launch : batch->launches) TUTTI_TRY(programs_.reach(launch));
  return batch;
}

/// The narrowest of all messages' types does for each of them.
void GpuMessages::fill(std::span<const Call> calls, Batch& batch) const {
  for (GpuCall& launch : batch.launches) launch.launch.data_type = TUTTI_UINT64;
  auto index = batch.indices.begin();
  for (const Call& call : calls) {
    if (left_out(call)) continue;
    tutti_cuda_launch& launch = batch.launches[index->launch].launch;
    tutti_cuda_message& message = launch.messages[index->message];
    message.from = call.input;
    message.to = call.output;
    const uint64_t bits = address_bits(call.receives ? call.output : call.input) | message.bytes;
    launch.data_type = std::min(launch.data_type, copy_type(bits));
    ++index;
  }
}

}  // namespace tutti::backend
