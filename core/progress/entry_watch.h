// SPDX-License-Identifier: Apache-2.0
// A watchdog over the entries of a network plugin. An entry that does not return blocks its thread for ever, so a
// different thread must notice it: the watch warns after 1 s, and ends the job at the deadline.
//
// The cost of a call is three relaxed stores. The watch looks four times a second.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/status.h"

namespace tutti::progress {

class EntryWatch;

/// The entry that is running for one object, for example for a connection. One thread at a time runs entries of it.
class EntryMark {
 public:
  /// `place`: "the connection from rank 0 (host a, eth0) to rank 1 (host b, eth0)". Null watch: no one looks.
  EntryMark(EntryWatch* watch, std::string place);
  ~EntryMark();
  EntryMark(const EntryMark&) = delete;
  EntryMark& operator=(const EntryMark&) = delete;
  /// Any thread.
  void set_place(std::string place);

  /// Runs `body`, which calls the entry. `entry` must live for ever.
  template <class Body>
  auto call(const char* entry, Body&& body) {
    const Inside inside(*this, entry);
    return body();
  }

 private:
  friend class EntryWatch;
  struct Inside {
    Inside(EntryMark& of, const char* entry) : mark(of) {
      mark.calls_.store(mark.calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      mark.entry_.store(entry, std::memory_order_relaxed);
    }
    ~Inside() { mark.entry_.store(nullptr, std::memory_order_relaxed); }
    EntryMark& mark;
  };
  using Clock = std::chrono::steady_clock;

  EntryWatch* watch_;
  // Written by the calling thread, read by the watch. Relaxed: no other data depends on them.
  std::atomic<const char*> entry_{nullptr};
  std::atomic<uint64_t> calls_{0};
  // Guarded by the watch's mutex.
  std::string place_;
  uint64_t seen_calls_ = 0;
  Clock::time_point since_;
  bool warned_ = false;
  bool failed_ = false;
};

/// Watches all marks of one network. Threads: any, but for construction and destruction.
class EntryWatch {
 public:
  struct Options {
    std::string network;  ///< for texts
    std::chrono::nanoseconds warn_after{std::chrono::seconds(1)};
    std::chrono::nanoseconds deadline{};  ///< timeouts.operation; 0: only warnings
    std::chrono::nanoseconds grace{std::chrono::seconds(5)};
    std::function<void(Status)> on_deadline;  ///< breaks the communicator; called once, on the watch's thread
    std::function<void()> end_process;        ///< called if the entry has not returned `grace` after the deadline
  };
  explicit EntryWatch(Options options);
  ~EntryWatch();
  EntryWatch(const EntryWatch&) = delete;
  EntryWatch& operator=(const EntryWatch&) = delete;

 private:
  friend class EntryMark;
  using Clock = std::chrono::steady_clock;
  void add(EntryMark& mark);
  void remove(EntryMark& mark);
  void run();
  /// The failure to report, if a mark has reached the deadline.
  Status look(Clock::time_point now, Clock::duration lost);

  Options options_;
  std::mutex mutex_;  // guards marks_, stopping_ and the marks' members
  std::condition_variable wake_;
  std::vector<EntryMark*> marks_;
  bool stopping_ = false;
  bool ends_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace tutti::progress
