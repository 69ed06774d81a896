// SPDX-License-Identifier: Apache-2.0
#include "unit/kernel_protocols.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

namespace tutti::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

tutti_slot_layout line_layout(uint32_t slots, uint64_t lines, uint64_t data, uint64_t bytes) {
  tutti_slot_layout layout = layout_of(slots, lines * data, 1);
  layout.slot_stride = lines * bytes;
  return layout;
}

}  // namespace

const std::vector<Protocol>& all_protocols() {
  static const std::vector<Protocol> kProtocols = {
      {"ll", Wire::kLL, line_layout(8, 512, 8, 16), 64, false},
      {"ll of small slots", Wire::kLL, line_layout(8, 6, 8, 16), 32, false},
      {"ll128", Wire::kLL128, line_layout(4, 256, 120, 128), 64, false},
      {"ll128 of small slots", Wire::kLL128, line_layout(4, 2, 120, 128), 96, false},
      {"simple", Wire::kSimple, layout_of(16, 65536, 8, 1), 0, true},
      {"simple of small slots", Wire::kSimple, layout_of(4, 128, 2, 1), 0, true},
      {"simple of many small slots", Wire::kSimple, layout_of(16, 128, 8, 1), 0, true},
      {"simple without bulk copies", Wire::kSimple, layout_of(4, 128, 2, 1), 0, false},
  };
  return kProtocols;
}

std::string protocol_name(const testing::TestParamInfo<Protocol>& instance) {
  std::string name = instance.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

Protocol with_less_memory(Protocol protocol) {
  constexpr uint64_t kMostBytes = 4096;
  if (protocol.layout.slot_stride * protocol.layout.slot_count <= 8 * kMostBytes) return protocol;
  if (protocol.wire == Wire::kSimple) {
    protocol.layout.slot_bytes = protocol.layout.slot_stride = kMostBytes;
  } else {
    const uint64_t lines = protocol.layout.slot_stride / kMostBytes;
    protocol.layout.slot_stride /= lines;
    protocol.layout.slot_bytes /= lines;
  }
  return protocol;
}

KernelMachine::Options options_of(const Protocol& protocol, uint32_t ranks, uint32_t ctas) {
  KernelMachine::Options options;
  options.wire = protocol.wire;
  options.rank_count = ranks;
  options.layout = protocol.layout;
  options.ctas = ctas;
  options.threads = protocol.threads;
  options.stages = protocol.stages;
  options.hosts = protocol.hosts;
  return options;
}

uint64_t test_seed() {
  const char* const given = std::getenv("TUTTI_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
}

bool is_slow() {
  return kSanitized && std::getenv("TUTTI_TEST_ROUNDS") == nullptr;
}

bool takes_few(const Protocol& protocol) {
  return is_slow() || (protocol.wire == Wire::kSimple && std::getenv("TUTTI_TEST_ROUNDS") == nullptr);
}

int rounds(const Protocol& protocol, int of_slices) {
  if (is_slow()) return 1;
  const char* const times = std::getenv("TUTTI_TEST_ROUNDS");
  return (protocol.wire == Wire::kSimple ? of_slices : 4 * of_slices) * (times != nullptr ? std::atoi(times) : 1);
}

std::vector<uint32_t> all_of(uint32_t first, uint32_t last) {
  std::vector<uint32_t> all(last + 1 - first);
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::string run(const Protocol& protocol, std::span<const TestCall> tests, uint32_t ctas, uint32_t first_number,
                uint64_t seed) {
  std::vector<ProgramCall> calls;
  for (const TestCall& test : tests) calls.push_back(test.call());
  KernelMachine::Options options = options_of(protocol, static_cast<uint32_t>(calls[0].programs.size()), ctas);
  options.first_number = first_number;
  options.seed = seed;
  options.tail_rest = (seed >> 16 & 7) << 29;  // of any age
  options.scatters = protocol.wire == Wire::kSimple && (seed >> 20 & 1) != 0;
  options.large_ranks = seed >> 32;  // some ranks run kernels of the large form: their messages are the same
  if (std::string wrong = KernelMachine(options).run(calls, ctas); !wrong.empty()) return wrong;
  for (size_t i = 0; i < tests.size(); ++i) {
    if (std::string wrong = tests[i].check(); !wrong.empty()) return fmt::format("call {}: {}", i, wrong);
  }
  return {};
}

}  // namespace tutti::test
