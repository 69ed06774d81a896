// SPDX-License-Identifier: Apache-2.0
#include "transport/checked_objects.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace tutti::transport::checked {
namespace {

constexpr std::array<uint8_t, 16> kPattern = {0x9e, 0x3b, 0xc7, 0x51, 0xa8, 0x0d, 0xf4, 0x62,
                                              0x1b, 0xd5, 0x7e, 0x83, 0x2c, 0xe9, 0x46, 0xb0};
constexpr std::chrono::milliseconds kSleep{20};
// On a busy machine, a lock may keep an honest entry once, and a process may be stopped within an entry.
constexpr uint32_t kMostSleeps = 3;
constexpr uint32_t kForgetAfter = 1000;  // calls
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::microseconds kMedian{1000};  // instrumented code takes longer
#else
constexpr std::chrono::microseconds kMedian{100};
#endif
constexpr int64_t kCopyNsOfByte = 1;  // a slow machine copies 1 GB/s
// The engine sleeps for at most 100 ms after `arm`; a message that ends this sleep by no event was not announced.
constexpr int64_t kUnwokenNs = 90'000'000;
constexpr int64_t kRoundNs = 1'000'000;
constexpr uint32_t kMostUnwoken = 3;
constexpr uint64_t kMostRefusals = 10'000;
constexpr int64_t kRefusalNs = 2'000'000'000;

int64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// How often the thread gave its processor away.
long waits() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

void Poison::fill(uint8_t* at, uint64_t bytes) {
  uint64_t done = std::min<uint64_t>(bytes, kPattern.size());
  std::memcpy(at, kPattern.data(), done);
  for (; done < bytes; done += std::min(done, bytes - done)) std::memcpy(at + done, at, std::min(done, bytes - done));
}

bool Poison::is_whole(const uint8_t* begin, uint64_t offset, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (begin[offset + i] != kPattern[(offset + i) % kPattern.size()]) return false;
  }
  return true;
}

void Budget::begin() {
  measures_ = suspects_sleep_ || suspects_time_;
  if (measures_) {
    cpu_ns_ = cpu_ns();
    waits_ = waits();
  }
  wall_ = Clock::now();
}

std::string Budget::end(const char* entry) {
  const auto wall = Clock::now() - wall_;
  int64_t cpu = 0;
  if (++since_sleep_ > kForgetAfter) sleeps_ = 0;
  if (wall >= kSleep) {
    since_sleep_ = 0;
    if (measures_ && waits() > waits_ && ++sleeps_ >= kMostSleeps) {
      return fmt::format("'{}' slept for {:.0f} ms, for the {}th time", entry,
                         std::chrono::duration<double, std::milli>(wall).count(), sleeps_ + 1);
    }
    suspects_sleep_ = true;
  }
  if (measures_) cpu = cpu_ns() - cpu_ns_;
  if (series_ns_.capacity() == 0) series_ns_.reserve(kSeries);
  if (!suspects_time_) {
    series_ns_.push_back(std::chrono::nanoseconds(wall).count());
  } else if (measures_) {
    series_ns_.push_back(cpu);
  }
  return series_ns_.size() < kSeries ? std::string() : judge_series(entry);
}

std::string Budget::judge_series(const char* entry) {
  const auto middle = series_ns_.begin() + kSeries / 2;
  std::nth_element(series_ns_.begin(), middle, series_ns_.end());
  const std::chrono::nanoseconds median(*middle);
  series_ns_.clear();
  const bool was_suspect = suspects_time_;
  suspects_time_ = median > kMedian + std::chrono::nanoseconds(static_cast<int64_t>(largest_message_) * kCopyNsOfByte);
  if (!suspects_time_ || !was_suspect) return {};
  return fmt::format("'{}' takes {:.0f} µs of its processor in the median of {} calls", entry,
                     std::chrono::duration<double, std::micro>(median).count(), kSeries);
}

int64_t Arming::now_ns() {
  return Clock::now().time_since_epoch().count();
}

std::string Arming::armed(bool sleeps) {
  if (sleeps) {
    refusals_.store(0);
    armed_at_.store(now_ns());
    return {};
  }
  if (refusals_.fetch_add(1) == 0) refuses_since_.store(now_ns());
  if (refusals_.load() < kMostRefusals || now_ns() - refuses_since_.load() < kRefusalNs) return {};
  return fmt::format("'arm' has returned TUTTI_AGAIN {} times in a row for {:.1f} s, while nothing came",
                     refusals_.exchange(0), static_cast<double>(now_ns() - refuses_since_.load()) * 1e-9);
}

void Arming::look() {
  if (armed_at_.load(std::memory_order_relaxed) == 0) return;
  const int64_t armed_at = armed_at_.exchange(0);
  const int fd = fd_.load();
  if (armed_at == 0 || fd < 0) return;
  pollfd ready{fd, POLLIN, 0};
  const bool is_woken = poll(&ready, 1, 0) != 0;
  if (is_woken) unwoken_.store(0);
  const int64_t now = now_ns();
  suspect_until_.store(!is_woken && now - armed_at >= kUnwokenNs ? now + kRoundNs : 0);
}

void Arming::posted() {
  suspect_until_.store(0, std::memory_order_relaxed);
  moved();
}

std::string Arming::arrived() {
  moved();
  if (suspect_until_.load(std::memory_order_relaxed) == 0) return {};
  if (now_ns() > suspect_until_.exchange(0) || unwoken_.fetch_add(1) + 1 < kMostUnwoken) return {};
  unwoken_.store(0);
  return fmt::format(
      "{} messages in a row were there after 'arm' had returned TUTTI_OK, but the descriptor was not readable",
      kMostUnwoken);
}

void Arming::moved() {
  if (refusals_.load(std::memory_order_relaxed) != 0) refusals_.store(0, std::memory_order_relaxed);
}

Request& Connection::take() {
  constexpr size_t kQuarantine = 16;  // requests that are done and not used again at once
  if (free.size() > kQuarantine) {
    Request* const oldest = free.front();
    free.pop_front();
    *oldest = {};
    return *oldest;
  }
  return *requests.emplace_back(std::make_unique<Request>());
}

bool Connection::is_on_host(const void* address, uint64_t bytes) const {
  const auto* const begin = static_cast<const uint8_t*>(address);
  return std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
    return region.on_host && begin >= region.begin && begin + bytes <= region.begin + region.bytes;
  });
}

}  // namespace tutti::transport::checked
