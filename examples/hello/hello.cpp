// SPDX-License-Identifier: Apache-2.0
// Four ranks, here as threads of one process, add up their numbers.
#include <cstdio>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

int run_rank(const tutti::UniqueId& id, int rank, int ranks) {
  auto comm = tutti::Communicator::create(id, rank, ranks);
  if (!comm.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, comm.status().to_string().c_str());
    return 1;
  }
  const float mine = static_cast<float>(rank + 1);
  float sum = 0;
  const tutti::Status status = comm->all_reduce(&mine, &sum, 1, tutti::DataType::kFloat32, tutti::ReduceOp::kSum);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, status.to_string().c_str());
    return 1;
  }
  std::printf("rank %d of %d: the sum is %g\n", rank, ranks, static_cast<double>(sum));
  return 0;
}

int main() {
  constexpr int kRanks = 4;
  const auto id = tutti::UniqueId::create();
  if (!id.ok()) {
    std::fprintf(stderr, "%s\n", id.status().to_string().c_str());
    return 1;
  }
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  std::vector<int> failed(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { failed[static_cast<size_t>(rank)] = run_rank(*id, rank, kRanks); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int f : failed) {
    if (f != 0) return 1;
  }
  return 0;
}
