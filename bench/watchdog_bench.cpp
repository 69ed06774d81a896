// SPDX-License-Identifier: Apache-2.0
// The cost of the watchdog over the entries of a network plugin: a call of an empty entry through its table, with and
// without a mark. An 8-byte message takes at least four calls: send and test, and recv and test.
#include <benchmark/benchmark.h>

#include "progress/entry_watch.h"
#include "tutti/plugin/network.h"

namespace {

using tutti::progress::EntryMark;
using tutti::progress::EntryWatch;

int32_t test(void* /*request*/, int32_t* done, uint64_t* /*bytes*/) {
  *done = 0;
  return TUTTI_OK;
}

/// A table that the compiler cannot look into.
const tutti_network_ops* table() {
  static const tutti_network_ops ops = [] {
    tutti_network_ops made{};
    made.struct_size = sizeof made;
    made.test = test;
    return made;
  }();
  const tutti_network_ops* pointer = &ops;
  benchmark::DoNotOptimize(pointer);
  return pointer;
}

void bench_without(benchmark::State& state) {
  const tutti_network_ops* ops = table();
  int32_t done = 0;
  for (auto _ : state) benchmark::DoNotOptimize(ops->test(nullptr, &done, nullptr));
}

void bench_with(benchmark::State& state) {
  const tutti_network_ops* ops = table();
  EntryWatch watch({.network = "bench", .on_deadline = [](const tutti::Status&) {}, .end_process = [] {}});
  EntryMark mark(&watch, "the connection of the benchmark");
  int32_t done = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(mark.call("test", [&] { return ops->test(nullptr, &done, nullptr); }));
  }
}

BENCHMARK(bench_without)->Name("entry/without_watchdog");
BENCHMARK(bench_with)->Name("entry/with_watchdog");

}  // namespace

BENCHMARK_MAIN();
