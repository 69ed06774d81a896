// SPDX-License-Identifier: Apache-2.0
// Throughput and latency of the host reduction kernels, with memcpy in the same run as the yardstick.
// bytes_per_second counts one stream: the bytes of one source. reduce_bench --benchmark_filter=float32
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tutti/device/host/reduce.h"
#include "tutti/plugin/types.h"

namespace {

using tutti::device::InstructionSet;
using tutti::device::ReduceCall;
using tutti::device::ReduceFunction;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

/// Zeroes: no NaN, no subnormal, no overflow, so every type runs at its usual speed.
Buffer make_buffer(size_t bytes) {
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(memory, 0, bytes);
  return Buffer(memory);
}

void bench_memcpy(benchmark::State& state, size_t bytes) {
  Buffer from = make_buffer(bytes);
  Buffer to = make_buffer(bytes);
  for (auto _ : state) {
    tutti::device::copy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

struct Case {
  ReduceFunction function;
  size_t element_bytes;
  uint64_t count;
  uint32_t sources;
  uint32_t divisor;
  bool streaming;
};

void bench_reduce(benchmark::State& state, const Case& c) {
  const size_t bytes = c.count * c.element_bytes;
  std::vector<Buffer> buffers;
  std::vector<const void*> sources;
  for (uint32_t i = 0; i < c.sources; ++i) sources.push_back(buffers.emplace_back(make_buffer(bytes)).get());
  Buffer destination = make_buffer(bytes);
  void* destinations[] = {destination.get()};
  const ReduceCall call{.sources = sources.data(),
                        .source_count = c.sources,
                        .destination_count = 1,
                        .destinations = destinations,
                        .count = c.count,
                        .scalar = 0,
                        .scaled_source = -1,
                        .divisor = c.divisor,
                        .streaming = c.streaming};
  for (auto _ : state) {
    c.function(call);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

struct Type {
  const char* name;
  uint32_t value;
  size_t bytes;
};
constexpr Type kTypes[] = {
    {"float32", TUTTI_FLOAT32, 4},
    {"float64", TUTTI_FLOAT64, 8},
    {"float16", TUTTI_FLOAT16, 2},
    {"bfloat16", TUTTI_BFLOAT16, 2},
    {"float8_e4m3", TUTTI_FLOAT8_E4M3, 1},
    {"float8_e5m2", TUTTI_FLOAT8_E5M2, 1},
    {"int8", TUTTI_INT8, 1},
    {"int32", TUTTI_INT32, 4},
    {"int64", TUTTI_INT64, 8},
};
struct Operation {
  const char* name;
  uint32_t value;
};
constexpr Operation kOperations[] = {{"sum", TUTTI_SUM}, {"max", TUTTI_MAX}, {"avg", TUTTI_AVG}};
constexpr size_t kSizes[] = {64, 16 << 10, 256 << 10, 64 << 20};

void register_case(InstructionSet set, const Type& type, const Operation& op, uint64_t count, uint32_t sources,
                   bool streaming = false) {
  ReduceFunction function = tutti::device::select_reduce_for(set, type.value, op.value);
  if (function == nullptr) return;
  const std::string name = std::string(to_string(set)) + "/" + type.name + "/" + op.name +
                           "/sources:" + std::to_string(sources) + "/bytes:" + std::to_string(count * type.bytes) +
                           (streaming ? "/streaming" : "");
  const Case c{function, type.bytes, count, sources, op.value == TUTTI_AVG ? sources : 0u, streaming};
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { bench_reduce(state, c); });
}

}  // namespace

int main(int argc, char** argv) {
  for (size_t bytes : kSizes) {
    benchmark::RegisterBenchmark(("memcpy/bytes:" + std::to_string(bytes)).c_str(),
                                 [bytes](benchmark::State& state) { bench_memcpy(state, bytes); });
  }
  for (InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    for (const Type& type : kTypes) {
      for (const Operation& op : kOperations) {
        for (size_t bytes : kSizes) register_case(set, type, op, bytes / type.bytes, 2);
      }
      for (uint64_t count : {1, 3, 8, 13, 16}) register_case(set, type, kOperations[0], count, 2);
      register_case(set, type, kOperations[0], (64 << 10) / type.bytes, 8);
      register_case(set, type, kOperations[0], (64 << 20) / type.bytes, 2, true);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
