// SPDX-License-Identifier: Apache-2.0
// The public calls: each puts its arguments into a Call and hands it on.
#include "tutti/communicator.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "communicator/group.h"
#include "communicator/state.h"
#include "log/log.h"
#include "tutti/device/numeric.h"

namespace tutti {

namespace {

template <class T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
uint64_t integer_bits(double factor) {
  const double low = static_cast<double>(std::numeric_limits<T>::lowest());
  const double high = static_cast<double>(std::numeric_limits<T>::max());
  if (!(factor > low)) return bits_of(std::isnan(factor) ? T{0} : std::numeric_limits<T>::lowest());
  return bits_of(factor >= high ? std::numeric_limits<T>::max() : static_cast<T>(factor));
}

/// A call that is left to a group, or runs now. Streams belong to devices; the host device has none.
Status make(const std::shared_ptr<Communicator::State>& state, backend::Call call, Stream stream) {
  if (!state->is_here()) [[unlikely]]
    return state->check_process();
  if (stream != nullptr && !state->takes_streams()) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: the host device has no streams; pass none", to_string(call.collective)));
  }
  call.stream = stream;
  if (communicator::defer(state, call)) return {};
  return communicator::run_now(*state, call);
}

}  // namespace

Reduction pre_mul_sum(DataType type, double factor) {
  using namespace device;
  const auto single = static_cast<float>(factor);
  const auto bits = [&]() -> uint64_t {
    switch (type) {
      case DataType::kInt8:
        return integer_bits<int8_t>(factor);
      case DataType::kUint8:
        return integer_bits<uint8_t>(factor);
      case DataType::kInt32:
        return integer_bits<int32_t>(factor);
      case DataType::kUint32:
        return integer_bits<uint32_t>(factor);
      case DataType::kInt64:
        return integer_bits<int64_t>(factor);
      case DataType::kUint64:
        return integer_bits<uint64_t>(factor);
      case DataType::kFloat16:
        return bits_of(narrow<float16>(single).code);
      case DataType::kBfloat16:
        return bits_of(narrow<bfloat16>(single).code);
      case DataType::kFloat8E4M3:
        return bits_of(narrow<float8_e4m3>(single).code);
      case DataType::kFloat8E5M2:
        return bits_of(narrow<float8_e5m2>(single).code);
      case DataType::kFloat32:
        return bits_of(single);
      case DataType::kFloat64:
        return bits_of(factor);
    }
    return 0;
  };
  return {ReduceOp::kPreMulSum, bits()};
}

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const {
  return state_->rank();
}
int Communicator::size() const {
  return state_->size();
}

Status Communicator::all_reduce(const void* input, void* output, size_t count, DataType type, Reduction op,
                                Stream stream) {
  return make(state_, {Collective::kAllReduce, input, output, count, type, op}, stream);
}

Status Communicator::reduce_scatter(const void* input, void* output, size_t count, DataType type, Reduction op,
                                    Stream stream) {
  return make(state_, {Collective::kReduceScatter, input, output, count, type, op}, stream);
}

Status Communicator::all_gather(const void* input, void* output, size_t count, DataType type, Stream stream) {
  return make(state_, {Collective::kAllGather, input, output, count, type}, stream);
}

Status Communicator::broadcast(const void* input, void* output, size_t count, DataType type, int root, Stream stream) {
  return make(state_, {Collective::kBroadcast, input, output, count, type, ReduceOp::kSum, root}, stream);
}

Status Communicator::reduce(const void* input, void* output, size_t count, DataType type, Reduction op, int root,
                            Stream stream) {
  return make(state_, {Collective::kReduce, input, output, count, type, op, root}, stream);
}

Status Communicator::all_to_all(const void* input, void* output, size_t count, DataType type, Stream stream) {
  return make(state_, {Collective::kAllToAll, input, output, count, type}, stream);
}

Status Communicator::gather(const void* input, void* output, size_t count, DataType type, int root, Stream stream) {
  return make(state_, {Collective::kGather, input, output, count, type, ReduceOp::kSum, root}, stream);
}

Status Communicator::scatter(const void* input, void* output, size_t count, DataType type, int root, Stream stream) {
  return make(state_, {Collective::kScatter, input, output, count, type, ReduceOp::kSum, root}, stream);
}

Status Communicator::send(const void* input, size_t count, DataType type, int peer, Stream stream) {
  return make(state_, {Collective::kSendRecv, input, nullptr, count, type, ReduceOp::kSum, peer, false}, stream);
}

Status Communicator::recv(void* output, size_t count, DataType type, int peer, Stream stream) {
  return make(state_, {Collective::kSendRecv, nullptr, output, count, type, ReduceOp::kSum, peer, true}, stream);
}

Status Communicator::all_to_all_v(const void* input, std::span<const size_t> send_counts,
                                  std::span<const size_t> send_offsets, void* output,
                                  std::span<const size_t> recv_counts, std::span<const size_t> recv_offsets,
                                  DataType type, Stream stream) {
  const auto ranks = static_cast<size_t>(size());
  for (const auto& [name, length] : {std::pair("send_counts", send_counts.size()),
                                     {"send_offsets", send_offsets.size()},
                                     {"recv_counts", recv_counts.size()},
                                     {"recv_offsets", recv_offsets.size()}}) {
    if (length != ranks) {
      return Status(Code::kInvalidArgument,
                    fmt::format("all_to_all_v: {} has {} entries; it needs one per rank, {}", name, length, ranks));
    }
  }
  if (input != nullptr && input == output) {
    return Status(Code::kInvalidArgument,
                  "all_to_all_v: input and output are the same buffer; it does not work in place");
  }
  TUTTI_TRY(group_start());
  Status status;
  const size_t bytes = size_of(type);
  for (size_t i = 0; i < ranks && status.ok(); ++i) {
    const size_t peer = (static_cast<size_t>(rank()) + i) % ranks;
    const auto* from = input == nullptr ? nullptr : static_cast<const uint8_t*>(input) + send_offsets[peer] * bytes;
    auto* to = output == nullptr ? nullptr : static_cast<uint8_t*>(output) + recv_offsets[peer] * bytes;
    status = send(from, send_counts[peer], type, static_cast<int>(peer), stream);
    if (status.ok()) status = recv(to, recv_counts[peer], type, static_cast<int>(peer), stream);
  }
  const Status ended = group_end();
  return status.ok() ? ended : status;
}

Status Communicator::barrier(Stream stream) {
  TUTTI_TRY(state_->check_process());
  return state_->barrier(stream);
}

Result<Registration> Communicator::register_buffer(void* buffer, size_t bytes) {
  TUTTI_TRY(state_->check_process());
  TUTTI_ASSIGN(const std::optional<uint64_t> number, state_->register_buffer(buffer, bytes));
  if (!number) return Registration();
  const auto end = [number = *number, state = std::weak_ptr<State>(state_)] {
    if (const auto alive = state.lock(); alive && alive->is_here()) alive->end_registration(number);
  };
  return Registration(end, true);
}

Result<std::vector<std::vector<std::byte>>> Communicator::exchange(std::span<const std::byte> mine) {
  TUTTI_TRY(state_->check_process());
  return state_->exchange(mine);
}

void Communicator::abort(std::string_view reason) {
  const Status here = state_->check_process();
  if (!here.ok()) return log::warn("abort has no effect: {}", here.text());
  state_->abort(reason);
}
Status Communicator::async_error() const {
  TUTTI_TRY(state_->check_process());
  return state_->check_device();
}

Result<Choice> Communicator::choose(Collective collective, size_t count, DataType type, Reduction op,
                                    bool registered) const {
  TUTTI_TRY(state_->check_process());
  return state_->choose({collective, type, op.op, count, registered});
}

Result<std::string> Communicator::explain(Collective collective, size_t count, DataType type, Reduction op,
                                          bool registered) const {
  TUTTI_TRY(state_->check_process());
  return state_->explain({collective, type, op.op, count, registered});
}

Counters Communicator::counters() const {
  return state_->counters();
}

}  // namespace tutti
