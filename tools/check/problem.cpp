// SPDX-License-Identifier: Apache-2.0
#include "tools/check/problem.h"

#include <fmt/format.h>

namespace tutti::check {

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

bool has_blocks(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
         collective == Collective::kAllToAll || collective == Collective::kGather || collective == Collective::kScatter;
}

size_t block_elements(const Problem& problem, int from, int to) {
  if (!problem.uneven || problem.rank_count == 1) return problem.count;
  const auto share = static_cast<size_t>((from + to) % problem.rank_count);
  return 2 * problem.count * share / static_cast<size_t>(problem.rank_count - 1);
}

namespace {

/// The elements of all blocks that a rank sends, or receives.
size_t all_blocks(const Problem& problem, int rank) {
  size_t elements = 0;
  for (int peer = 0; peer < problem.rank_count; ++peer) elements += block_elements(problem, rank, peer);
  return elements;
}

}  // namespace

size_t input_elements(const Problem& problem, int rank) {
  const size_t blocks = problem.count * static_cast<size_t>(problem.rank_count);
  switch (problem.collective) {
    case Collective::kReduceScatter:
      return blocks;
    case Collective::kAllToAll:
      return all_blocks(problem, rank);
    case Collective::kScatter:
      return rank == problem.root ? blocks : 0;
    case Collective::kBroadcast:
      return rank == problem.root ? problem.count : 0;
    default:
      return problem.count;
  }
}

size_t output_elements(const Problem& problem, int rank) {
  const size_t blocks = problem.count * static_cast<size_t>(problem.rank_count);
  switch (problem.collective) {
    case Collective::kAllGather:
      return blocks;
    case Collective::kAllToAll:
      return all_blocks(problem, rank);
    case Collective::kGather:
      return rank == problem.root ? blocks : 0;
    case Collective::kReduce:
      return rank == problem.root ? problem.count : 0;
    default:
      return problem.count;
  }
}

size_t bytes_of(const Problem& problem) {
  const size_t blocks = has_blocks(problem.collective) ? static_cast<size_t>(problem.rank_count) : 1;
  return problem.count * blocks * size_of(problem.type);
}

std::optional<InPlace> in_place(const Problem& problem, int rank) {
  const size_t blocks = problem.count * static_cast<size_t>(problem.rank_count);
  const size_t own = problem.count * static_cast<size_t>(rank);
  const bool is_root = rank == problem.root;
  switch (problem.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return InPlace{problem.count, 0, 0};
    case Collective::kReduceScatter:
      return InPlace{blocks, 0, own};
    case Collective::kAllGather:
      return InPlace{blocks, own, 0};
    case Collective::kGather:
      return is_root ? InPlace{blocks, own, 0} : InPlace{problem.count, 0, 0};
    case Collective::kScatter:
      return is_root ? InPlace{blocks, 0, own} : InPlace{problem.count, 0, 0};
    default:
      return std::nullopt;
  }
}

double pre_mul_factor(DataType type, int rank) {
  switch (type) {
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return rank % 2 == 0 ? 1 : -1;
    case DataType::kUint8:
    case DataType::kUint32:
    case DataType::kUint64:
      return 1 + rank % 3;
    case DataType::kInt8:
    case DataType::kInt32:
    case DataType::kInt64:
      return rank % 3 - 1;
    default:
      return 0.75 * (1 + rank % 3) - 1;
  }
}

Call::Call(const Problem& problem, int rank)
    : problem_(problem),
      rank_(rank),
      reduction_(problem.op == ReduceOp::kPreMulSum ? pre_mul_sum(problem.type, pre_mul_factor(problem.type, rank))
                                                    : Reduction(problem.op)) {
  if (!problem.uneven) return;
  size_t sent = 0;
  size_t received = 0;
  for (int peer = 0; peer < problem.rank_count; ++peer) {
    sent_.offsets.push_back(sent);
    received_.offsets.push_back(received);
    sent_.counts.push_back(block_elements(problem, rank, peer));
    received_.counts.push_back(block_elements(problem, peer, rank));
    sent += sent_.counts.back();
    received += received_.counts.back();
  }
}

Status Call::operator()(Communicator& communicator, const void* input, void* output, Stream stream) const {
  const auto& [collective, uneven, type, op, rank_count, root, count, seed] = problem_;
  const bool is_root = rank_ == root;
  switch (collective) {
    case Collective::kAllReduce:
      return communicator.all_reduce(input, output, count, type, reduction_, stream);
    case Collective::kReduceScatter:
      return communicator.reduce_scatter(input, output, count, type, reduction_, stream);
    case Collective::kAllGather:
      return communicator.all_gather(input, output, count, type, stream);
    case Collective::kBroadcast:
      return communicator.broadcast(is_root ? input : nullptr, output, count, type, root, stream);
    case Collective::kReduce:
      return communicator.reduce(input, is_root ? output : nullptr, count, type, reduction_, root, stream);
    case Collective::kAllToAll:
      if (!uneven) return communicator.all_to_all(input, output, count, type, stream);
      return communicator.all_to_all_v(input, sent_.counts, sent_.offsets, output, received_.counts, received_.offsets,
                                       type, stream);
    case Collective::kGather:
      return communicator.gather(input, is_root ? output : nullptr, count, type, root, stream);
    case Collective::kScatter:
      return communicator.scatter(is_root ? input : nullptr, output, count, type, root, stream);
    case Collective::kSendRecv:
      return ring(communicator, input, output, stream);
  }
  return Status(Code::kInvalidArgument, "unknown collective");
}

Status Call::ring(Communicator& communicator, const void* input, void* output, Stream stream) const {
  const int next = (rank_ + 1) % problem_.rank_count;
  const int previous = (rank_ + problem_.rank_count - 1) % problem_.rank_count;
  TUTTI_TRY(group_start());
  const Status sent = communicator.send(input, problem_.count, problem_.type, next, stream);
  const Status received = communicator.recv(output, problem_.count, problem_.type, previous, stream);
  Status done = group_end();
  TUTTI_TRY(sent);
  TUTTI_TRY(received);
  return done;
}

std::string to_string(const Problem& problem) {
  const bool reduction = reduces(problem.collective);
  return fmt::format("{}{} {}{}{}{}, {} elements, {} ranks", to_string(problem.collective), problem.uneven ? "_v" : "",
                     to_string(problem.type), reduction ? " " : "", reduction ? to_string(problem.op) : "",
                     has_root(problem.collective) ? fmt::format(" root {}", problem.root) : "", problem.count,
                     problem.rank_count);
}

}  // namespace tutti::check
