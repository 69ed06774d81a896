// SPDX-License-Identifier: Apache-2.0
#include "integration/stress/words.h"

#include <cuda_runtime.h>

#include <string>

namespace tutti::stress {
namespace {

constexpr int kThreads = 256;

bool takes_all_blocks(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
}
bool gives_all_blocks(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll;
}

/// Word `at` of a rank's input.
__device__ uint32_t word(uint32_t rank, uint32_t call, size_t at) {
  uint64_t mixed = (uint64_t{rank} << 56 ^ uint64_t{call} << 32 ^ at) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 29;
  return static_cast<uint32_t>(mixed * 0xbf58476d1ce4e5b9u >> 32);
}

__device__ uint32_t expected(const Round& round, size_t at) {
  const size_t block = at / round.count;
  const size_t rest = at % round.count;
  if (round.collective == Collective::kAllGather) return word(static_cast<uint32_t>(block), round.call, rest);
  const size_t own = round.rank * round.count;
  if (round.collective == Collective::kAllToAll) return word(static_cast<uint32_t>(block), round.call, own + rest);
  uint32_t sum = 0;
  for (uint32_t rank = 0; rank < round.rank_count; ++rank) {
    sum += word(rank, round.call, round.collective == Collective::kReduceScatter ? own + at : at);
  }
  return sum;
}

__global__ void fill(uint32_t* input, Round round, size_t words) {
  const size_t at = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < words) input[at] = word(round.rank, round.call, at);
}
__global__ void check(const uint32_t* output, Round round, size_t words, Outcome* outcome) {
  const size_t at = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < words && output[at] != expected(round, at)) atomicAdd(&outcome->wrong, 1ull);
  if (at == 0) atomicAdd(&outcome->checked, static_cast<unsigned long long>(words));
}

unsigned blocks_for(size_t words) {
  return static_cast<unsigned>((words + kThreads - 1) / kThreads);
}

Status started(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return {Code::kDevice, std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace

size_t input_words(const Round& round) {
  return round.count * (takes_all_blocks(round.collective) ? round.rank_count : 1);
}
size_t output_words(const Round& round) {
  return round.count * (gives_all_blocks(round.collective) ? round.rank_count : 1);
}

Status fill_input(uint32_t* input, const Round& round, void* stream) {
  const size_t words = input_words(round);
  fill<<<blocks_for(words), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, round, words);
  return started("the kernel that fills inputs");
}

Status check_output(const uint32_t* output, const Round& round, Outcome* outcome, void* stream) {
  const size_t words = output_words(round);
  check<<<blocks_for(words), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(output, round, words, outcome);
  return started("the kernel that checks outputs");
}

}  // namespace tutti::stress
