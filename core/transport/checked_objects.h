// SPDX-License-Identifier: Apache-2.0
// The objects that CheckedNetwork hands out in place of the plugin's, with what it remembers about them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/checked_network.h"

namespace tutti::transport::checked {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostParts = 8;  // parts of a grouped receive

/// The bytes of a receive's buffer before its message comes. Messages hold 16 bytes of this pattern by chance once in
/// 2^128 times.
class Poison {
 public:
  static void fill(uint8_t* at, uint64_t bytes);
  /// Whether `bytes` bytes, which begin `offset` bytes behind the beginning of a filled buffer, are as filled.
  static bool is_whole(const uint8_t* begin, uint64_t offset, uint64_t bytes);
};

/// Notices entries that sleep or take too long (NET-35). Wall time alone proves nothing, as the thread may have been
/// preempted. So the first calls that seem to violate the rule only make later calls be measured in full. One thread at
/// a time.
class Budget {
 public:
  void begin();
  /// A message of so many bytes is posted: from now on, a call may also take the time of a copy of it.
  void allow_message(uint64_t bytes) { largest_message_ = std::max(largest_message_, bytes); }
  /// The violation that the calls so far show; empty: none.
  std::string end(const char* entry);

 private:
  static constexpr size_t kSeries = 31;
  std::string judge_series(const char* entry);

  uint64_t largest_message_ = 0;
  Clock::time_point wall_;
  int64_t cpu_ns_ = 0;
  long waits_ = 0;
  bool measures_ = false;  // this call
  uint32_t sleeps_ = 0;    // measured calls that slept
  uint32_t since_sleep_ = 0;
  bool suspects_sleep_ = false;
  bool suspects_time_ = false;
  std::vector<int64_t> series_ns_;  // of wall time, or of processor time once the time is suspect
};

/// Watches `arm` of a context (NET-36, NET-37). Any thread.
class Arming {
 public:
  void set_fd(int fd) { fd_.store(fd); }
  /// `arm` returned TUTTI_OK (`sleeps`) or TUTTI_AGAIN. The violation, or empty.
  std::string armed(bool sleeps);
  /// An entry is about to look for messages.
  void look();
  /// A request was posted, so a later message need not have made the descriptor readable.
  void posted();
  /// A receive is complete. The violation, or empty.
  std::string arrived();
  /// Something moved: a request, a connection.
  void moved();

 private:
  static int64_t now_ns();

  std::atomic<int> fd_{-1};
  std::atomic<int64_t> armed_at_{0};       // 0: not armed
  std::atomic<int64_t> suspect_until_{0};  // 0: no suspicion
  std::atomic<uint32_t> unwoken_{0};       // messages in a row that did not make the descriptor readable
  std::atomic<uint64_t> refusals_{0};      // TUTTI_AGAIN in a row while nothing moved
  std::atomic<int64_t> refuses_since_{0};
};

struct Context;
struct Connection;

struct Part {
  uint8_t* address = nullptr;
  uint64_t room = 0;
  bool poisoned = false;
};

struct Request {
  Connection* connection = nullptr;
  void* inner = nullptr;
  bool receives = false;
  bool done = false;
  uint32_t count = 0;
  std::array<Part, kMostParts> parts{};
};

/// Memory that was registered for a connection.
struct Region {
  const uint8_t* begin = nullptr;
  uint64_t bytes = 0;
  bool on_host = false;
  void* registration = nullptr;
};

struct Connection {
  Context* context = nullptr;
  void* inner = nullptr;
  bool closed = false;
  std::vector<Region> regions;
  std::deque<std::unique_ptr<Request>> requests;  // owned; done requests are used again, oldest first
  std::deque<Request*> free;
  Budget send, recv, test;

  void allow_message(uint64_t bytes) {
    for (Budget* const budget : {&send, &recv, &test}) budget->allow_message(bytes);
  }
  Request& take();
  bool is_on_host(const void* address, uint64_t bytes) const;
};

struct Listener {
  Context* context = nullptr;
  void* inner = nullptr;
};

/// A connect or accept under way: the plugin's state, and the context that it belongs to.
struct Pending {
  Context* context = nullptr;
  void* inner = nullptr;
};

struct Context {
  const CheckedNetwork* network = nullptr;
  void* inner = nullptr;
  Arming arming;
  std::mutex mutex;                                // guards closed
  std::deque<std::unique_ptr<Connection>> closed;  // kept for a while, so that calls on them are found
  Budget arm;
  std::atomic<uint32_t> connect_sleeps{0};  // calls of connect and accept that slept
};

}  // namespace tutti::transport::checked
