// SPDX-License-Identifier: Apache-2.0
// The progress engine of a communicator moves data between slots and a network ("proxy").
//
// A thread that waits for the network drives the engine itself, without a hand-over to a different thread. Meanwhile,
// the engine's own thread rests, and neither the doorbell nor the network wakes it. The engine's thread takes over in
// three cases: data must go out and no thread drives, no thread has driven for some milliseconds, or a driver pauses.
// It then sleeps when nothing moves, on its doorbell and on the network's event descriptor at once. Tasks that must be
// polled have threads of their own (polling_thread.h). While these move data, the engine's thread sleeps on its
// doorbell only: each message would wake it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "progress/entry_watch.h"
#include "progress/polling_thread.h"
#include "tutti/plugin/network.h"
#include "tutti/plugin/protocol.h"
#include "tutti/status.h"

namespace tutti::progress {

/// Something that needs pushing on. Called by one thread at a time.
class Task {
 public:
  virtual ~Task() = default;
  /// Progresses as far as possible without blocking. True if any data moved.
  virtual Result<bool> progress() = 0;
  /// True when nothing is left that must go out before the communicator closes.
  virtual bool idle() const = 0;
  /// False: the task only brings data of other peers.
  virtual bool serves(uint32_t /*peer*/) const { return true; }
  /// True while data must go out for which a peer may wait. A thread that ends its drive then hands over.
  virtual bool urgent() const { return !idle(); }
  /// Sends what the task holds back to send it with more. Called before a thread sleeps. True if it began to send.
  virtual Result<bool> settle() { return false; }
  /// True if nothing rings when the task can move. Such a task runs on a polling thread.
  virtual bool polls() const { return false; }
};

class Engine {
 public:
  struct Options {
    std::function<void(Status)> on_failure;  ///< called once by each thread that makes progress, at most
    uint32_t polling_threads = 1;            ///< most threads for tasks that poll; at least 1
  };
  /// Polling threads start later, and use the processors that the calling thread has now.
  static Result<std::unique_ptr<Engine>> create(Options options);
  ~Engine();

  /// A network whose events wake the engine's thread. Without an event descriptor, the engine's thread polls.
  struct Source {
    const tutti_network_ops* ops = nullptr;
    void* context = nullptr;
    bool has_events = false;      ///< TUTTI_NET_CAP_EVENT_FD
    EntryWatch* watch = nullptr;  ///< the watch of the network; null: none
    std::string place;            ///< the place of this rank, for the watch
    /// The failure of an entry of the network that returned this code in this thread. Needed with `has_events`.
    std::function<Status(std::string_view doing, int32_t code)> failure = {};
  };
  static constexpr size_t kMostSources = 8;
  /// At most kMostSources. Any thread.
  void add_source(Source source);
  /// Ends the threads, and gives up all tasks. Before the network of a source is closed. One thread.
  void stop();

  /// Adds a task; the first task starts the thread. Any thread.
  void add(std::shared_ptr<Task> task);
  /// One round by the calling thread, unless a different thread runs a round. With a peer, the round leaves out the
  /// tasks that do not serve this peer. True if any data moved. Any thread.
  bool assist(std::optional<uint32_t> peer = {});

  /// A thread that drives the engine by assist(), from construction to destruction. One thread at a time uses it.
  class Drive {
   public:
    /// Null: there is no engine, and nothing to drive.
    explicit Drive(Engine* engine);
    ~Drive();
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;
    /// Lets the engine's thread move the data from now on, because the calling thread is going to sleep.
    void pause();
    /// Drives again after pause().
    void resume();

   private:
    Engine* engine_;
    bool drives_ = false;
  };

  /// Makes progress until all tasks are idle: then true. False when the deadline passes, the engine has failed or
  /// `gives_up` says so, which is asked some times a second at least.
  bool flush(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& gives_up);
  /// Rung by executors after they filled or freed a slot that the engine moves.
  tutti_bell& bell() { return *bell_; }

 private:
  explicit Engine(Options options);
  void run();
  bool round(std::optional<uint32_t> peer = {});
  bool advance(Task& task);
  bool settle();
  bool took(const Result<bool>& moved);
  /// With mutex_ held.
  void fail(const Status& failure);
  void sleep();
  bool is_driven();
  void rest();
  void begin_drive();
  void end_drive(bool hands_over);
  bool push_out();
  void add_polling(std::shared_ptr<Task> task);
  bool has_idle_pollers(bool& failed);
  bool pollers_have_moved();

  /// TUTTI_AGAIN: there is work now. The failure of a source is reported. With mutex_ held.
  int32_t arm();

  struct Armed {
    Source source;
    std::unique_ptr<EntryMark> mark;
    int fd = -1;  ///< -1: the source has no descriptor
  };
  Options options_;
  std::vector<Armed> sources_;
  bool blind_ = false;  // a source has no descriptor
  std::unique_ptr<tutti_bell> bell_;
  std::mutex mutex_;  // guards sources_, blind_, tasks_ and failed_, and makes rounds exclusive
  std::vector<std::shared_ptr<Task>> tasks_;
  bool failed_ = false;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<PollingThread>> pollers_;  // made when tasks that poll are added
  std::mutex pollers_mutex_;                             // guards pollers_ and next_poller_
  std::optional<cpu_set_t> processors_;                  // of the polling threads; none: unknown
  size_t next_poller_ = 0;
  uint64_t seen_moves_ = 0;  // of all pollers, by the engine's thread

  std::atomic<uint32_t> drivers_{0};  // threads that drive
  std::atomic<uint64_t> drives_{0};   // how often a thread has begun to
  std::atomic<bool> rests_{false};    // the engine's thread leaves the work to drivers
  uint64_t seen_drives_ = 0;          // by the engine's thread
  std::mutex rest_mutex_;             // guards handed_over_
  std::condition_variable rest_over_;
  bool handed_over_ = false;
  std::thread thread_;
};

}  // namespace tutti::progress
