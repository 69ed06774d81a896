// SPDX-License-Identifier: Apache-2.0
// Compares this rank's calls with the calls of all ranks in the background, and warns of waits without progress.
//
// Host: the first message of a call carries a digest, which finds most differences before data is used. The watch finds
// the rest: calls between which no message passes, since ranks wait for messages of different ranks or protocols. GPU:
// kernels compare nothing, so the watch finds every difference.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/attendance.h"
#include "backend/history.h"
#include "backend/waiting.h"
#include "bootstrap/bootstrap.h"
#include "communicator/survey.h"

namespace tutti::communicator {

/// answer() and tick() run on the bootstrap's thread, different() and states() on any thread but that.
class Watch {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    std::chrono::nanoseconds warn{};  ///< timeouts.warn; 0: never
    bool compare = true;              ///< check.calls
    bool on_gpu = false;              ///< nothing else compares, and a rank may take a call back
    /// The state of the connections with a rank, for warnings (Backend::connections).
    std::function<std::string(uint32_t peer)> connections_with = [](uint32_t) { return std::string(); };
  };
  /// Called with a difference; breaks the communicator.
  using Fail = std::function<void(const Status&)>;
  Watch(const History& history, const backend::Attendance& attendance, const backend::Waiting& waiting)
      : history_(history), attendance_(attendance), waiting_(waiting) {}
  /// Before the first call.
  void start(const Options& options, bootstrap::Bootstrap& bootstrap, Fail fail);

  /// How often tick() is wanted: rarer in large jobs, whose hub serves all ranks.
  static base::Milliseconds interval(uint32_t rank_count);
  bootstrap::Bytes answer(std::span<const std::byte> question) const;
  void tick();

  /// The difference between the ranks' calls, or between the messages of the turn; asks all ranks. Nothing: there is no
  /// known difference.
  std::optional<std::string> different(const backend::Turn& turn);
  /// "; rank 0 is in call 16, ...; rank 1 ...", of all ranks.
  std::string states(const backend::Turn& turn);

  /// A comparison with a rank that left: kMismatch in the text, or nothing.
  std::optional<std::string> different_from(const bootstrap::Departure& departure) const;
  /// At the end of this rank: a difference between the numbers of calls and messages of this rank and of ranks that
  /// left; nothing: there is none.
  std::optional<std::string> different_counts() const;

 private:
  using Answers = Result<std::vector<bootstrap::Answer>>;
  Question question_about(const backend::Turn& turn) const;
  std::vector<Report> reports_of(const std::vector<bootstrap::Answer>& answers) const;
  Report report_of(const bootstrap::Departure& departure) const;
  std::optional<std::string> describe_difference(const std::vector<Report>& reports, const backend::Turn& turn) const;

  void compare_calls();
  void take_calls(uint64_t number, const Answers& answers);
  void compare_waiting_message();
  void compare_next_message();
  void compare_message(const backend::Turn& turn);
  /// Finds the first difference, and fails with it.
  void report_difference(const backend::Turn& turn);
  void warn();
  void take_states(const backend::Waiting::Wait& wait, std::chrono::nanoseconds level, const Answers& answers) const;

  const History& history_;
  const backend::Attendance& attendance_;
  const backend::Waiting& waiting_;
  Options options_;
  bootstrap::Bootstrap* bootstrap_ = nullptr;
  Fail fail_;

  // State of the bootstrap's thread.
  bool found_ = false;      // a difference: nothing more is compared
  bool comparing_ = false;  // an answer is awaited
  bool suspects_ = false;   // the latest comparison found a difference
  uint64_t compared_ = 0;   // collective calls that are equal on all ranks
  uint32_t rest_ = 0;       // ticks until the next comparison
  uint32_t next_rest_ = 0;
  std::vector<uint64_t> compared_messages_;  // by sender
  uint32_t next_sender_ = 0;
  backend::Waiting::Clock::time_point warned_wait_;  // beginning of the wait that next_warning_ belongs to
  std::chrono::nanoseconds next_warning_{};
};

}  // namespace tutti::communicator
