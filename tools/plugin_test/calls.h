// SPDX-License-Identifier: Apache-2.0
// Calls of a plugin's entries: each call is visible to the process that watches, may be timed, and lets no exception
// through.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tools::plugin_test {

enum class Entry : uint32_t {
  kNone,
  kOpen,
  kCreate,
  kDestroy,
  kDeviceCount,
  kProperties,
  kListen,
  kConnect,
  kAccept,
  kCancel,
  kRegister,
  kDeregister,
  kSend,
  kRecv,
  kFlush,
  kTest,
  kCloseConnection,
  kCloseListener,
  kEventFd,
  kArm,
};
inline constexpr uint32_t kEntryCount = static_cast<uint32_t>(Entry::kArm) + 1;
std::string_view to_string(Entry entry);

/// The state of one side, in memory that the watching process shares.
struct Watched {
  std::atomic<uint32_t> entry;      ///< an Entry; relaxed: the watcher reads it some times a second
  std::atomic<int64_t> since_ns;    ///< when the entry was called, on the steady clock
  std::array<char, 160> waits_for;  ///< awaited event; read after the process has ended
  std::atomic<bool> is_set_up;      ///< create, properties and listen have succeeded
};
struct SharedState {
  std::array<Watched, 2> sides;
};

int64_t now_ns();

/// Durations of one entry's calls.
struct Timing {
  std::vector<float> us;         ///< wall time of each call
  float longest_blocked_us = 0;  ///< longest call that gave the processor away, without its own CPU time
};

/// One side's calls. Thread: the side's own.
class Calls {
 public:
  explicit Calls(Watched& watched) : watched_(watched) {}

  /// Runs `body`, which calls the entry. `caught`: handles the text of an exception; does not return.
  template <class Body, class Caught>
  auto call(Entry entry, Body&& body, Caught&& caught) {
    const Visible visible(*this, entry);
    try {
      return body();
    } catch (const std::exception& error) {
      caught(std::string(error.what()));
    } catch (...) {
      caught(std::string("an exception of an unknown type"));
    }
    std::terminate();
  }

  /// Times all later calls, or no more calls.
  void measure(bool on) { measures_ = on; }
  const Timing& timing(Entry entry) const { return timings_[static_cast<uint32_t>(entry)]; }
  void forget() { timings_ = {}; }
  Watched& watched() { return watched_; }

 private:
  struct Sample {
    int64_t wall_ns = 0;
    int64_t cpu_ns = 0;
    long waits = 0;  // times that the thread gave the processor away
  };
  static Sample sample();
  class Visible {
   public:
    Visible(Calls& calls, Entry entry);
    ~Visible();
    Visible(const Visible&) = delete;
    Visible& operator=(const Visible&) = delete;

   private:
    Calls& calls_;
    Entry entry_;
    Sample before_;
  };

  Watched& watched_;
  bool measures_ = false;
  std::array<Timing, kEntryCount> timings_;
};

}  // namespace tutti::tools::plugin_test
