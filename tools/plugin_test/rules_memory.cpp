// SPDX-License-Identifier: Apache-2.0
// Rules about registered memory, and about memory and descriptors that a plugin keeps.
#include <fmt/format.h>
#include <malloc.h>

#include <array>
#include <filesystem>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kRegion = 8192;

/// Sends from the middle of regions that overlap, while other regions come and go.
void test_registration(Side& side) {
  void* const connection = side.link(0);
  std::vector<uint8_t> memory(16 * kRegion);
  for (uint64_t round = 0; round < 4; ++round) {
    std::vector<void*> regions;
    for (uint64_t i = 0; i < 31; ++i) {
      regions.push_back(side.register_memory(connection, memory.data() + i * kRegion / 2, kRegion));
    }
    for (uint64_t i = 0; i < regions.size(); ++i) {
      const uint64_t offset = i * kRegion / 2 + 100 + round;
      const std::span<uint8_t> part(memory.data() + offset, 3000);
      fill(part, side.is_first() ? round * 64 + i : ~uint64_t{0});
      void* const request = side.is_first() ? side.send(connection, part.data(), part.size(), regions[i])
                                            : side.recv(connection, part.data(), part.size(), regions[i]);
      const std::string name = fmt::format("message from offset {} of region {}", 100 + round, i);
      side.finish(request, name);
      const std::string text = difference(part, round * 64 + i);
      if (!text.empty()) side.violate(fmt::format("{}: {}", name, text));
      side.deregister_memory(connection, regions[i]);
    }
    side.meet();
  }
}

int64_t allocated() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

int64_t descriptors() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// Memory and descriptors that many runs of `cycle` leave. The first runs fill pools.
struct Growth {
  int64_t bytes = 0;
  int64_t descriptors = 0;
};

/// Both sides may be threads of one process, and counting descriptors takes memory for a moment.
Growth in_use(Side& side) {
  side.meet();
  const int64_t bytes = allocated();
  side.meet();
  const int64_t open = descriptors();
  side.meet();
  return {bytes, open};
}

template <class Cycle>
Growth growth(Side& side, int times, Cycle&& cycle) {
  for (int i = 0; i < times / 2; ++i) cycle();
  const Growth before = in_use(side);
  for (int i = 0; i < times; ++i) cycle();
  const Growth after = in_use(side);
  return {after.bytes - before.bytes, after.descriptors - before.descriptors};
}

/// A pool that grows once is no leak, so a violation must repeat.
void test_message_leak(Side& side) {
  constexpr int kTimes = 600;
  constexpr int kAttempts = 3;
  void* const connection = side.link(0);
  Growth grown;
  bool again = true;
  for (int attempt = 0; attempt < kAttempts && again; ++attempt) {
    grown = growth(side, kTimes, [&] {
      Buffer buffer(side, connection, 64);
      side.finish(side.is_first() ? buffer.send(0, 64) : buffer.recv(0, 64), "message");
    });
    const bool grows = grown.bytes > kTimes * 32;
    side.tell(grows);
    again = side.hear_as<bool>() || grows;
  }
  if (grown.bytes > kTimes * 32) {
    side.violate(fmt::format("{} messages leave {} bytes of memory, in {} attempts of {}", kTimes, grown.bytes,
                             kAttempts, kAttempts));
  }
  side.meet();
}

void check(Side& side, const Growth& grown, int times, std::string_view gone) {
  if (grown.descriptors >= times / 2) {
    side.violate(fmt::format("{} {} leave {} descriptors open", times, gone, grown.descriptors));
  }
  if (grown.bytes > int64_t{times} * 16384) {
    side.violate(fmt::format("{} {} leave {} bytes of memory", times, gone, grown.bytes));
  }
}

void test_connection_leak(Side& side) {
  constexpr int kTimes = 24;
  const Growth grown = growth(side, kTimes, [&] {
    void* const connection = side.link(0);
    side.close(connection);
    side.meet();
  });
  check(side, grown, kTimes, "closed connections");
}

void test_context_leak(Side& side) {
  constexpr int kTimes = 24;
  const auto cycle = [&] {
    const Side::Options& options = side.options();
    void* context = nullptr;
    void* listener = nullptr;
    tutti_net_handle handle{};
    side.call(Entry::kCreate, [&] { return side.ops().create(options.plugin->self(), options.seed, &context); });
    side.call(Entry::kListen, [&] { return side.ops().listen(context, options.device, &handle, &listener); });
    side.call_void(Entry::kCloseListener, [&] { side.ops().close_listener(listener); });
    side.call_void(Entry::kDestroy, [&] { side.ops().destroy(context); });
    side.meet();
  };
  check(side, growth(side, kTimes, cycle), kTimes, "destroyed contexts with a closed listener");
}

constexpr std::array kRules = {
    rule(25, test_registration),
    rule(26, test_message_leak),
    rule(27, test_connection_leak),
};

constexpr std::array kLaterRules = {rule(39, test_context_leak)};

}  // namespace

std::span<const Rule> memory_rules() {
  return kRules;
}

std::span<const Rule> context_rules() {
  return kLaterRules;
}

}  // namespace tutti::tools::plugin_test
