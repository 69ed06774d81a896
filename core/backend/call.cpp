// SPDX-License-Identifier: Apache-2.0
#include "backend/call.h"

#include <fmt/format.h>

#include <limits>

namespace tutti::backend {
namespace {

struct Buffers {
  bool reads_input;
  bool writes_output;
  size_t input_blocks;
  size_t output_blocks;
};

Buffers buffers_of(const Call& call, int rank, int size) {
  const auto blocks = static_cast<size_t>(size);
  const bool root = rank == call.root;
  switch (call.collective) {
    case Collective::kAllReduce:
      return {true, true, 1, 1};
    case Collective::kReduceScatter:
      return {true, true, blocks, 1};
    case Collective::kAllGather:
      return {true, true, 1, blocks};
    case Collective::kBroadcast:
      return {root, true, 1, 1};
    case Collective::kReduce:
      return {true, root, 1, 1};
    case Collective::kAllToAll:
      return {true, true, blocks, blocks};
    case Collective::kGather:
      return {true, root, 1, blocks};
    case Collective::kScatter:
      return {root, true, blocks, 1};
    case Collective::kSendRecv:
      return {!call.receives, call.receives, 1, 1};
  }
  return {true, true, 1, 1};
}

bool rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter || collective == Collective::kSendRecv;
}

Status invalid(const Call& call, std::string_view text) {
  return Status(Code::kInvalidArgument, fmt::format("{}: {}", to_string(call.collective), text));
}

Status check_enums(const Call& call) {
  if (size_of(call.type) == 0) {
    return invalid(
        call, fmt::format("data type {} is unknown; use a value of tutti::DataType", static_cast<uint32_t>(call.type)));
  }
  if (static_cast<uint32_t>(call.reduction.op) >= kReduceOpCount) {
    return invalid(call, fmt::format("reduction {} is unknown; use a value of tutti::ReduceOp",
                                     static_cast<uint32_t>(call.reduction.op)));
  }
  return {};
}

}  // namespace

Status check(const Call& call, int rank, int size) {
  TUTTI_TRY(check_enums(call));
  if (rooted(call.collective) && (call.root < 0 || call.root >= size)) {
    return invalid(call, fmt::format("{} {} is not a rank of this communicator; ranks are 0 to {}",
                                     call.collective == Collective::kSendRecv ? "peer" : "root", call.root, size - 1));
  }
  const Buffers buffers = buffers_of(call, rank, size);
  // A negative count becomes a huge size_t: no buffer is as large as half the address space.
  const size_t limit = static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()) / size_of(call.type) /
                       std::max(buffers.input_blocks, buffers.output_blocks);
  if (call.count > limit) {
    return invalid(
        call, fmt::format("count {} × {} bytes × {} blocks is larger than any buffer; was it negative?", call.count,
                          size_of(call.type), std::max(buffers.input_blocks, buffers.output_blocks)));
  }
  if (call.count == 0) return {};
  if (buffers.reads_input && call.input == nullptr) return invalid(call, "input is null, but is read on this rank");
  if (buffers.writes_output && call.output == nullptr)
    return invalid(call, "output is null, but is written on this rank");
  if (call.collective == Collective::kAllToAll && call.input == call.output) {
    return invalid(call, "input and output are the same buffer; it does not work in place");
  }
  return {};
}

size_t output_blocks_everywhere(Collective collective, int size) {
  if (collective == Collective::kSendRecv) return 0;
  Call call;
  call.collective = collective;
  constexpr int kNotTheRoot = -1;
  const Buffers buffers = buffers_of(call, kNotTheRoot, size);
  return buffers.writes_output ? buffers.output_blocks : 0;
}

Result<OwnMessages> own_messages(std::span<const Call> calls, int rank) {
  OwnMessages own;
  for (const Call& call : calls) {
    if (call.root == rank) (call.receives ? own.receives : own.sends).push_back(&call);
  }
  if (own.sends.size() != own.receives.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("send_recv: {} sends to this rank itself but {} receives from itself in one "
                              "group; each needs its partner there",
                              own.sends.size(), own.receives.size()));
  }
  for (size_t i = 0; i < own.sends.size(); ++i) {
    const Call& send = *own.sends[i];
    const Call& receive = *own.receives[i];
    if (send.count * size_of(send.type) == receive.count * size_of(receive.type)) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("send_recv to this rank itself: sends {} × {}, receives {} × {}", send.count,
                              to_string(send.type), receive.count, to_string(receive.type)));
  }
  return own;
}

bool in_place(const Call& call, int rank) {
  if (call.input == nullptr || call.output == nullptr) return false;
  const auto* input = static_cast<const uint8_t*>(call.input);
  const auto* output = static_cast<const uint8_t*>(call.output);
  const size_t own = static_cast<size_t>(rank) * call.count * size_of(call.type);
  switch (call.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return output == input + own;
    case Collective::kAllGather:
    case Collective::kGather:
      return input == output + own;
    default:
      return input == output;
  }
}

uint64_t Call::kind() const {
  const bool rooted_call = rooted(collective) && collective != Collective::kSendRecv;
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                       collective == Collective::kReduceScatter;
  const uint64_t of_root = rooted_call ? static_cast<uint32_t>(root) : 0;
  const uint64_t op = reduces ? static_cast<uint64_t>(reduction.op) : 0;
  return static_cast<uint64_t>(collective) | static_cast<uint64_t>(type) << 8 | op << 16 | of_root << 32;
}

Call Call::of_kind(uint64_t kind, uint64_t count) {
  Call call;
  call.collective = static_cast<Collective>(kind & 0xff);
  call.type = static_cast<DataType>(kind >> 8 & 0xff);
  call.reduction = static_cast<ReduceOp>(kind >> 16 & 0xff);
  call.root = static_cast<int>(kind >> 32);
  call.count = count;
  return call;
}

std::string describe(const Call& call) {
  std::string text = fmt::format("{} of {} × {}", to_string(call.collective), call.count, to_string(call.type));
  const bool p2p = call.collective == Collective::kSendRecv;
  if (call.collective == Collective::kAllReduce || call.collective == Collective::kReduce ||
      call.collective == Collective::kReduceScatter) {
    text += fmt::format(", {}", to_string(call.reduction.op));
  }
  if (rooted(call.collective) && !p2p) text += fmt::format(", root {}", call.root);
  return text;
}

}  // namespace tutti::backend
