// SPDX-License-Identifier: Apache-2.0
// Four ranks, here as threads of one process, add up their numbers. Rank 2 leaves, and the other ranks go on without
// it.
#include <array>
#include <cstdio>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

constexpr int kRanks = 4;
constexpr int kLeaver = 2;

tutti::Status add_up(tutti::Communicator& comm, float& sum) {
  const auto mine = static_cast<float>(comm.rank() + 1);
  return comm.all_reduce(&mine, &sum, 1, tutti::DataType::kFloat32, tutti::ReduceOp::kSum);
}

tutti::Status run_rank(const tutti::UniqueId& id, int rank) {
  auto comm = tutti::Communicator::create(id, rank, kRanks);
  if (!comm.ok()) return comm.status();
  float sum = 0;
  tutti::Status status = add_up(*comm, sum);
  if (!status.ok() || rank == kLeaver) return status;
  status = add_up(*comm, sum);  // rank 2 has left, or leaves: the call fails and names it
  std::printf("rank %d: %s\n", rank, status.to_string().c_str());
  const std::array excluded = {kLeaver};
  auto less = comm->shrink(excluded, tutti::ShrinkMode::kAbort);
  if (!less.ok()) return less.status();
  status = add_up(*less, sum);
  std::printf("rank %d is rank %d of %d: the sum is %g\n", rank, less->rank(), less->size(), static_cast<double>(sum));
  return status;
}

int main() {
  const auto id = tutti::UniqueId::create();
  if (!id.ok()) {
    std::fprintf(stderr, "%s\n", id.status().to_string().c_str());
    return 1;
  }
  std::vector<tutti::Status> results(kRanks);
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = run_rank(*id, rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const tutti::Status& result : results) {
    if (!result.ok()) std::fprintf(stderr, "%s\n", result.to_string().c_str());
    if (!result.ok()) return 1;
  }
  return 0;
}
