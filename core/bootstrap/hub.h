// SPDX-License-Identifier: Apache-2.0
// The hub: where the ranks of one UniqueId meet. It takes them in, passes on what they exchange, and tells the others
// when one is lost.
#pragma once

#include <map>
#include <optional>

#include "bootstrap/departure.h"
#include "bootstrap/door.h"
#include "bootstrap/failure.h"
#include "bootstrap/round.h"

namespace tutti::bootstrap {

/// When all ranks have come, each gets its reply; when they cannot all come, each gets the same failure, as do those
/// that come later. Calls that cannot be completed fail on every rank, and so do all later ones.
///
/// Everything but serve() runs on the poller's thread.
class Hub {
 public:
  static constexpr base::Milliseconds kHelloLimit{5000};
  /// How long a hub whose ranks could not meet stays to tell the late ones why.
  static constexpr base::Milliseconds kLingerAfterFailure{60000};

  /// Serves until every rank has left or is lost, or until the process ends. Any thread.
  static void serve(Poller& poller, base::Fd listener, const Secret& secret,
                    base::Milliseconds hello_limit = kHelloLimit);
  Hub(Poller& poller, base::Fd listener, const Secret& secret, base::Milliseconds hello_limit);
  /// Tells the ranks that are still there that nothing more will come from here.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  enum class Phase { kJoining, kRunning, kFailed };
  struct Member {
    enum class State { kAbsent, kPresent, kLeft, kLost };
    State state = State::kAbsent;
    std::shared_ptr<Link> link;
    std::string origin;     ///< "node7 pid 42"
    uint32_t hello_id = 0;  ///< what its hello is answered with
    /// Set once it has announced to leave: its link stays while it still has data to send.
    std::optional<Ending> ending;
  };
  struct OpenSurvey {
    Survey survey;
    Poller::Timer limit;
  };

  Status admit(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header);
  Status check(const Hello& hello, const std::string& origin) const;
  void start();
  void fail_joining(const Status& why);

  void receive(int rank, Frame frame);
  void call(int rank, Frame frame);
  void check_round();
  /// kRemote when a rank that stays has made the open call and another rank has left, or is about to.
  Status absence() const;
  void answer_for(int gone, Answer::State state);
  void fail_calls(const Status& why);
  void query(int rank, Frame frame);
  void answer(uint32_t survey, int rank, Answer answer);
  void close_survey(uint32_t survey);
  void take_ending(int rank, const Bytes& payload);
  void leave(int rank);
  void lose(int rank, const std::string& why);
  /// Of a member that is gone: what waits for it need not wait any longer.
  void forget(int rank, Member::State state);

  /// Wakes the hub at the earliest deadline of those that wait for all.
  void limit_wait(uint32_t timeout_ms);
  void end_wait();
  void waited_too_long();

  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  const Member& member(int rank) const { return members_[static_cast<size_t>(rank)]; }
  std::vector<int> ranks_in(Member::State state) const;
  void reply(int rank, uint32_t id, const Status& why);
  void tell_all(const Header& header, std::string_view text = {});
  void announce(FailureKind kind, int rank, const Status& why);

  Poller& poller_;
  Phase phase_ = Phase::kJoining;
  Status failure_;               ///< why the ranks could not meet, or why calls fail from now on
  std::vector<Member> members_;  ///< by rank; empty before the first comes
  std::optional<Round> round_;   ///< there once all have joined
  bool announced_ = false;       ///< the first failure of the group is told, later ones are not
  std::map<uint32_t, OpenSurvey> surveys_;
  uint32_t survey_count_ = 0;
  Poller::Timer wait_{base::kNever, 0};
  base::Milliseconds wait_limit_{};  ///< what the rank whose deadline it is had
  Door door_;
};

}  // namespace tutti::bootstrap
