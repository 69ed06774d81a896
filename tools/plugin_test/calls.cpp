// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/calls.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>

namespace tutti::tools::plugin_test {
namespace {

int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::string_view to_string(Entry entry) {
  constexpr std::array<std::string_view, kEntryCount> kNames = {
      "none",    "open",   "create",           "destroy",         "device_count",      "properties", "listen",
      "connect", "accept", "cancel",           "register_memory", "deregister_memory", "send",       "recv",
      "flush",   "test",   "close_connection", "close_listener",  "event_fd",          "arm"};
  return kNames[static_cast<uint32_t>(entry)];
}

int64_t now_ns() {
  return read_clock(CLOCK_MONOTONIC);
}

Calls::Sample Calls::sample() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return {now_ns(), read_clock(CLOCK_THREAD_CPUTIME_ID), usage.ru_nvcsw};
}

Calls::Visible::Visible(Calls& calls, Entry entry) : calls_(calls), entry_(entry) {
  calls.watched_.since_ns.store(now_ns(), std::memory_order_relaxed);
  calls.watched_.entry.store(static_cast<uint32_t>(entry), std::memory_order_relaxed);
  if (calls.measures_) before_ = sample();
}

Calls::Visible::~Visible() {
  calls_.watched_.entry.store(0, std::memory_order_relaxed);
  if (!calls_.measures_ || before_.wall_ns == 0) return;
  const Sample after = sample();
  Timing& timing = calls_.timings_[static_cast<uint32_t>(entry_)];
  const auto wall = static_cast<float>(after.wall_ns - before_.wall_ns) * 1e-3f;
  const auto cpu = static_cast<float>(after.cpu_ns - before_.cpu_ns) * 1e-3f;
  timing.us.push_back(wall);
  // A preempted thread has not given the processor away.
  if (after.waits > before_.waits) timing.longest_blocked_us = std::max(timing.longest_blocked_us, wall - cpu);
}

}  // namespace tutti::tools::plugin_test
