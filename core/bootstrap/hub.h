// SPDX-License-Identifier: Apache-2.0
// The hub: the meeting place of the ranks of one UniqueId. It admits ranks, forwards the data that they exchange, and
// tells all ranks when a rank is lost.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "bootstrap/acceptor.h"
#include "bootstrap/departure.h"
#include "bootstrap/failure.h"
#include "bootstrap/lineup.h"
#include "bootstrap/round.h"

namespace tutti::bootstrap {

/// When all ranks have come, each gets its reply. When some cannot come, each gets the same failure, and so do later
/// ranks. Calls that cannot be completed fail on every rank, and so do all later calls.
///
/// A group has two hubs, if its ranks live in several processes. The primary made the unique id. The standby is in the
/// process of a rank, and receives all frames that the primary receives. It holds its replies to calls back, until a
/// rank relies on it, because the rank has lost the primary.
///
/// In large groups, ranks pass long results on (result_tree.h). The primary then sends a long result to the ranks
/// without a parent, and holds it for all other ranks, until a rank says that its parent is gone.
///
/// All functions but serve() run on the poller's thread.
class Hub {
 public:
  /// The time for which a hub whose ranks could not meet stays, to tell late ranks the reason.
  static constexpr base::Milliseconds kLingerAfterFailure{60000};
  /// How long a hub tells late ranks that the group is complete, before it closes its acceptor.
  static constexpr base::Milliseconds kLingerAfterStart{5000};

  /// A primary, until every rank has left or is lost, or until the process ends. It takes connections at the address,
  /// which it returns with its port. Any thread.
  static Result<base::SocketAddress> serve(Poller& poller, const base::SocketAddress& address, const Secret& secret);
  /// The same as a standby, for ranks that have joined the primary.
  static Result<base::SocketAddress> serve_standby(Poller& poller, const base::SocketAddress& address,
                                                   const Secret& secret, const Lineup& lineup, int rank_count,
                                                   std::weak_ptr<Hub>& made);

  /// A primary of ranks that come much later, or never: it takes guests at a low rate until expect_ranks(). The owner
  /// of the poller may release it before a rank comes. Any thread.
  static Result<base::SocketAddress> serve_in_reserve(Poller& poller, const base::SocketAddress& address,
                                                      const Secret& secret, std::weak_ptr<Hub>& made);

  Hub(Poller& poller, std::shared_ptr<Acceptor> acceptor, const Secret& secret);
  /// Starts to take guests.
  Status open();
  /// The ranks come now. The hub ends if they have not all come within the limit.
  void expect_ranks(base::Milliseconds limit);
  /// Makes this hub the standby.
  void stand_by(const Lineup& lineup, int rank_count);
  /// Tells the ranks that are still there that nothing more will come from here.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  static Result<base::SocketAddress> start_on(Poller& poller, const base::SocketAddress& address, const Secret& secret,
                                              const std::function<void(const std::shared_ptr<Hub>&)>& prepare);

  enum class Phase { kJoining, kRunning, kFailed };
  /// The latest reply to a call that a standby has not sent, or that the primary has left to the parents.
  struct Held {
    Header header;
    std::shared_ptr<const Bytes> payload;  ///< null if there is none
  };
  struct Member {
    enum class State { kAbsent, kPresent, kLeft, kLost };
    State state = State::kAbsent;
    std::shared_ptr<Link> link;
    RankProcess process;
    uint32_t hello_id = 0;  ///< id for the answer to its hello
    /// Set once it has announced to leave: its link stays while it still has data to send.
    std::optional<Ending> ending = {};
    bool relies = false;                       ///< it has lost the other hub
    std::shared_ptr<const Bytes> branch = {};  ///< its kBranch; null before it
    uint32_t parent_question = 0;              ///< id of its open kParent; 0: none
    bool attached = false;                     ///< its parent sends it long results
    Held held = {};
    /// Calls that a standby has heard before the calls of slower ranks: the primary has answered the earlier ones.
    std::deque<Frame> ahead = {};
    size_t ahead_bytes = 0;
    bool called_before_ending = false;  ///< the open call
  };
  struct OpenSurvey {
    Survey survey;
    Poller::Timer limit;
  };

  Status admit(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header);
  Status check(const Hello& hello, const std::string& origin) const;
  void start();
  void close_acceptor(base::Milliseconds pause);
  void fail_joining(const Status& why);

  void receive(int rank, Frame frame);
  void call(int rank, Frame frame);
  void add_to_round(int rank, Frame frame);
  void check_round();
  void end_round();
  /// kRemote if a rank that stays has made the open call and a rank has left, or is about to leave.
  Status absence() const;
  void answer_for(int gone, Answer::State state);
  void fail_calls(const Status& why);
  void query(int rank, Frame frame);
  void answer(uint32_t survey, int rank, Answer answer);
  void close_survey(uint32_t survey);
  void take_ending(int rank, const Bytes& payload);
  void tell_endings();
  void leave(int rank);
  void lose(int rank, const Loss& loss);
  std::string text_of_loss(int rank, const Loss& loss) const;
  void take_branch(int rank, Frame frame);
  void tell_parent(int rank);
  void detach(int rank, const Frame& frame);
  void watch_parents(base::Milliseconds patience);
  void stop_watching_parents();
  void tell_of_overdue_results();
  void send_held(int rank);
  /// Whether this hub is the primary, and the result tree gives the rank a parent.
  bool has_parent(int rank) const { return !standby_ && roles_[static_cast<size_t>(rank)].parent >= 0; }
  void rely(int rank, const Frame& frame);
  void take_report(int rank, const Frame& frame);
  void judge_other_hub(int rank, const std::string& text);
  void note_end_of_other_hub(Rely why);
  /// Ends the waits for a member that is gone.
  void forget(int rank, Member::State state);

  /// Wakes the hub at the earliest deadline of the calls that wait for all ranks.
  void limit_wait(uint32_t timeout_ms);
  void end_wait();
  void waited_too_long();

  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  const Member& member(int rank) const { return members_[static_cast<size_t>(rank)]; }
  std::vector<int> ranks_in(Member::State state) const;
  void reply(int rank, uint32_t id, const Status& why);
  void reply_to_call(int rank, uint32_t id, Code code, std::shared_ptr<const Bytes> payload);
  bool decides() const { return !standby_ || relied_; }
  const HubProcess& own_process() const { return standby_ ? lineup_.standby : lineup_.primary; }
  const HubProcess& other_process() const { return standby_ ? lineup_.primary : lineup_.standby; }
  void tell_all(const Header& header, std::string_view text = {});
  void announce(FailureKind kind, int rank, const Status& why);

  Poller& poller_;
  std::shared_ptr<Acceptor> acceptor_;  ///< null once all have joined
  const Secret secret_;
  Tag tag_ = {};
  bool standby_ = false;
  bool in_reserve_ = false;  ///< it opened for ranks that come much later
  Lineup lineup_;            ///< once all have joined the primary
  Phase phase_ = Phase::kJoining;
  Status failure_;                 ///< why the ranks could not meet, or why calls fail from now on
  std::vector<Member> members_;    ///< by rank; empty before the first comes
  std::optional<Round> round_;     ///< there once all have joined
  bool relied_ = false;            ///< for a standby: a rank has lost the primary, so this hub decides
  bool overdue_ = false;           ///< for a standby: the open call is too late
  bool announced_ = false;         ///< the first failure of the group was reported; later failures are not
  bool other_ended_ = false;       ///< it is noted that the other hub is no more
  std::vector<BranchRole> roles_;  ///< by rank; for a primary, once all have joined
  bool warned_of_branch_ = false;  ///< a rank gets no results from its parent; later ranks are not reported
  std::map<uint32_t, OpenSurvey> surveys_;
  uint32_t survey_count_ = 0;
  Poller::Timer wait_{base::kNever, 0};
  base::Milliseconds wait_limit_{};  ///< the time-out of the rank with this deadline
  Poller::Timer closing_{base::kNever, 0};
  Poller::Timer endings_{base::kNever, 0};
  bool left_to_parents_ = false;  ///< a result, of which no rank has been asked whether it has come
  Poller::Timer overdue_results_{base::kNever, 0};
  std::vector<int> untold_;                ///< ranks whose endings a standby has not passed on
  std::map<int, Poller::Timer> verdicts_;  ///< by the rank that has lost the other hub
};

}  // namespace tutti::bootstrap
