// SPDX-License-Identifier: Apache-2.0
#include "communicator/gpu_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/lower.h"

namespace tutti::communicator {
namespace {

constexpr uint32_t kThreads = 512;

}  // namespace

/// What runs in one launch: at most one message per peer and direction, all of one protocol.
struct GpuMessages::Round {
  size_t number;  ///< how many messages of the group go before on the same connection
  uint32_t protocol;
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
  struct Member {
    const Call* call;
    tuner::Decision decision;
    Round round;
  };
  std::vector<Member> members;
  std::map<std::pair<int, bool>, size_t> before;
  std::map<Round, uint32_t> launches;
  for (const Call& call : calls) {
    if (left_out(call)) continue;
    TUTTI_ASSIGN(const tuner::Decision decision,
                 programs_.selector().choose({call.collective, call.type, call.reduction.op, call.count}));
    const Round round{before[{call.root, call.receives}]++, decision.protocol};
    members.push_back({&call, decision, round});
    launches[round] = 0;
  }
  auto batch = std::make_unique<Batch>();
  batch->launches.resize(launches.size());
  uint32_t next = 0;
  for (auto& [round, index] : launches) {
    index = next++;
    TUTTI_TRY(programs_.begin_messages(round.protocol, batch->launches[index]));
  }
  for (const Member& member : members) {
    const uint32_t index = launches[member.round];
    GpuCall& launch = batch->launches[index];
    batch->places.push_back({index, launch.launch.message_count});
    TUTTI_TRY(add(*member.call, member.decision, launch));
  }
  for (GpuCall& launch : batch->launches) TUTTI_TRY(programs_.offer(launch));
  for (GpuCall& launch : batch->launches) TUTTI_TRY(programs_.reach(launch));
  return batch;
}

Status GpuMessages::add(const Call& call, const tuner::Decision& decision, GpuCall& to) const {
  tutti_cuda_launch& launch = to.launch;
  if (launch.message_count == TUTTI_CUDA_MAX_MESSAGES) {
    return {Code::kUnsupported,
            fmt::format("a group with more than {} sends and receives of different peers", TUTTI_CUDA_MAX_MESSAGES)};
  }
  tutti_cuda_message& message = launch.messages[launch.message_count++];
  message.bytes = call.count * size_of(call.type);
  message.peer = static_cast<uint8_t>(call.root);
  message.receives = call.receives ? 1 : 0;
  message.first_cta = static_cast<uint8_t>(launch.cta_count);
  message.cta_count = static_cast<uint8_t>(std::min(decision.channels, max_ctas_));
  launch.cta_count += message.cta_count;
  message.cut = plan::cut_message(message.bytes, message.cta_count, links_.protocol(decision.protocol).layout);
  launch.thread_count = kThreads;
  return {};
}

/// The narrowest of all messages' types does for each of them.
void GpuMessages::fill(std::span<const Call> calls, Batch& batch) const {
  for (GpuCall& launch : batch.launches) launch.launch.data_type = TUTTI_UINT64;
  auto place = batch.places.begin();
  for (const Call& call : calls) {
    if (left_out(call)) continue;
    tutti_cuda_launch& launch = batch.launches[place->launch].launch;
    tutti_cuda_message& message = launch.messages[place->message];
    message.buffer = call.receives ? call.output : const_cast<void*>(call.input);
    launch.data_type = std::min(launch.data_type, copy_type(address_bits(message.buffer) | message.bytes));
    ++place;
  }
}

}  // namespace tutti::communicator
