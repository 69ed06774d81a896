// SPDX-License-Identifier: Apache-2.0
// Rules about the time of entries, and about sleeping on the event descriptor.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kBytes = 4096;
constexpr float kMedianLimit = 100 + kBytes * 1e-3F;  // µs, of the contract
constexpr float kBlockedLimit = 20'000;               // µs; a loaded machine delays a thread that wakes up
constexpr int kAttempts = 3;                          // a violation must repeat

void exchange(Side& side, void* connection, int times) {
  Buffer buffer(side, connection, kBytes);
  for (int i = 0; i < times; ++i) {
    side.finish(side.is_first() ? buffer.send(0, kBytes) : buffer.recv(0, kBytes), "message");
  }
  side.meet();
}

/// The entry that exceeds its time, as text; empty: none does.
std::string over_budget(Side& side) {
  for (const Entry entry :
       {Entry::kSend, Entry::kRecv, Entry::kTest, Entry::kRegister, Entry::kDeregister, Entry::kArm}) {
    const Timing& timing = side.calls().timing(entry);
    if (timing.longest_blocked_us > kBlockedLimit) {
      return fmt::format("entry '{}' slept for {:.0f} ms", to_string(entry), timing.longest_blocked_us * 1e-3);
    }
    if (timing.us.size() < 10) continue;
    std::vector<float> sorted = timing.us;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(sorted.size() / 2), sorted.end());
    const float median = sorted[sorted.size() / 2];
    if (median > kMedianLimit) {
      return fmt::format("entry '{}' takes {:.0f} µs in the median of {} calls", to_string(entry), median,
                         sorted.size());
    }
  }
  return {};
}

void test_budget(Side& side) {
  void* const connection = side.link(0);
  std::string text;
  bool again = true;
  for (int attempt = 0; attempt < kAttempts && again; ++attempt) {
    side.calls().forget();
    side.calls().measure(true);
    exchange(side, connection, 300);
    side.calls().measure(false);
    text = over_budget(side);
    side.tell(!text.empty());
    again = side.hear_as<bool>() || !text.empty();
  }
  if (!text.empty()) side.violate(fmt::format("{}, in {} attempts of {}", text, kAttempts, kAttempts));
  side.meet();
}

int event_fd(Side& side) {
  if ((side.capabilities() & TUTTI_NET_CAP_EVENT_FD) == 0) side.skip("the plugin has no event descriptor");
  int32_t fd = -1;
  side.call(Entry::kEventFd, [&] { return side.ops().event_fd(side.context(), &fd); });
  return fd;
}

/// Sleeps as the host does: looks once more, arms, sleeps.
void sleep_until_done(Side& side, int fd, void* request, int round) {
  while (!side.test(request)) {
    side.accept_guests();
    if (side.test(request)) return;
    const int32_t code = side.call(Entry::kArm, [&] { return side.ops().arm(side.context()); });
    if (code == TUTTI_AGAIN) continue;
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, 1000) != 0) continue;
    if (side.test(request)) {
      side.violate(
          fmt::format("message {} came, but arm had returned TUTTI_OK and the descriptor stayed silent for "
                      "1 s",
                      round));
    }
    side.violate(fmt::format("no message {} within 1 s of sleep", round));
  }
}

/// The sender waits for a random time that is about as long as the receiver's way to sleep.
void test_arm(Side& side) {
  const int fd = event_fd(side);
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 64);
  for (int round = 0; round < 200; ++round) {
    const uint64_t pause_ns = side.draw(0, round % 10 == 0 ? 2'000'000 : 60'000);
    if (side.is_first()) {
      side.hear_as<int>();
      for (const int64_t until = now_ns() + static_cast<int64_t>(pause_ns); now_ns() < until;) {
      }
      side.finish(buffer.send(0, 64), "end of a send to a sleeper");
    } else {
      void* const request = buffer.recv(0, 64);
      side.tell(round);
      sleep_until_done(side, fd, request, round);
    }
  }
  side.meet();
}

void test_arm_sleeps(Side& side) {
  event_fd(side);
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 64);
  void* const request = side.is_first() ? nullptr : buffer.recv(0, 64);
  side.meet();
  if (!side.is_first()) {
    const bool slept = side.wait_for("TUTTI_OK of arm while nothing comes", 0.5, [&] {
      side.test(request);
      side.accept_guests();
      return side.call(Entry::kArm, [&] { return side.ops().arm(side.context()); }) == TUTTI_OK;
    });
    if (!slept) side.violate("arm returns TUTTI_AGAIN for 0.5 s while nothing comes, so no thread can sleep");
  }
  side.meet();
  side.finish(side.is_first() ? buffer.send(0, 64) : request, "message after a sleep");
  side.meet();
}

constexpr std::array kRules = {
    rule(35, test_budget),
    rule(36, test_arm),
    rule(37, test_arm_sleeps),
};

}  // namespace

std::span<const Rule> progress_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
