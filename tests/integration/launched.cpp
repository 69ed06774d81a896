// SPDX-License-Identifier: Apache-2.0
// A program that joins the job of its launcher, and adds the numbers of the ranks. For launchers_test.py.
#include <cstdio>

#include "tutti/communicator.h"

int main() {
  auto communicator = tutti::Communicator::from_environment();
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().to_string().c_str());
    return 1;
  }
  int sum = communicator->rank() + 1;
  const tutti::Status done = communicator->all_reduce(&sum, &sum, 1, tutti::DataType::kInt32, tutti::ReduceOp::kSum);
  if (!done.ok()) {
    std::fprintf(stderr, "%s\n", done.to_string().c_str());
    return 1;
  }
  std::printf("rank %d of %d: sum %d\n", communicator->rank(), communicator->size(), sum);
  const auto second = tutti::Communicator::from_environment();
  std::printf("second: %s\n", second.ok() ? "joined" : second.status().to_string().c_str());
  return 0;
}
