// SPDX-License-Identifier: Apache-2.0
// The side of a rank: its connections to the hubs and to other ranks. Only bootstrap.cpp and its own sources include
// it.
#pragma once

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/branch.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/hub.h"
#include "bootstrap/questions.h"
#include "bootstrap/sealed_calls.h"

namespace tutti::bootstrap {

/// The connections to the hubs: frames come and go on the poller's thread, callers wait for the answers. Calls,
/// questions and failures go to both hubs, and the first answer counts.
class Bootstrap::Client {
 public:
  struct Options {
    int rank;
    int rank_count;
    base::Milliseconds peer_loss;
    Site site;
  };
  Client(std::shared_ptr<Poller> poller, Options options)
      : poller_(std::move(poller)), options_(std::move(options)), questions_(*poller_) {}
  ~Client() {
    leave();
    poller_->run([this] { *alive_ = false; });
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  int rank() const { return options_.rank; }
  int size() const { return options_.rank_count; }
  /// In a forked child of the process that joined.
  bool forked() const { return !poller_->running(); }

  Status join(const Endpoint& endpoint, base::Time deadline);

  /// Sends a question and waits for its answer, a failure of the group, or the end of the connections. The answers to
  /// queries are waited for in spite of a failure.
  Result<Bytes> exchange(Header header, Bytes payload, base::Time deadline);
  SealedCalls& calls() { return *calls_; }

  void set_callbacks(Callbacks callbacks);
  void ask(Bytes question, base::Time deadline, Answered done);
  std::optional<FailureReport> failure() const;
  bool all_know_failure() const;
  bool hears() const;
  std::optional<FailureReport> wait_for_failure(base::Time deadline) const;
  void post_abort(std::string_view text);
  void announce(const Ending& ending);
  void leave();

 private:
  enum { kPrimary, kStandby };
  /// This rank's end of the connection to a hub. For the poller's thread.
  struct HubEnd {
    std::shared_ptr<Link> link;  ///< null before it is connected
    std::string address;
    HubProcess process;    ///< known once all have joined
    bool in_use = false;   ///< gets all frames; the primary from the start, the standby when all ranks have reached it
    bool closing = false;  ///< its process ends in good order
    void use() { in_use = link->is_open() && !closing; }
    bool serves() const { return in_use && link && link->is_open() && !closing; }
  };

  /// Runs the task soon on the poller's thread, unless this client is gone by then. A handler that runs while the
  /// client leaves may post a task behind the client's last task.
  void post(Poller::Task task);
  Hello hello() const;
  void connect(int index, const base::SocketAddress& address, base::Fd socket);

  // The standby.

  /// The address at which this rank takes connections of other ranks, on any free port. `primary_sees`: the address of
  /// this rank's connection to the primary.
  Result<base::SocketAddress> own_address(const base::SocketAddress& primary_sees) const;

  /// All ranks use the standby, or none does.
  Status join_standby(const Endpoint& primary, const Lineup& lineup, const base::SocketAddress& here,
                      base::Time deadline);
  Result<base::SocketAddress> start_standby(const Secret& secret, const Lineup& lineup, const base::SocketAddress& here,
                                            std::weak_ptr<Hub>& made);
  Status reach_standby(const Secret& secret, const Bytes& announced, base::Time deadline);
  Result<bool> all_reached(const Bytes& packed, const Lineup& lineup);
  void drop_standby(const std::weak_ptr<Hub>& own);

  // The result tree.

  /// Takes this rank's place in the tree. A rank without its parent gets all results from the primary.
  void join_tree(const Secret& group, const BranchRole& role, const base::SocketAddress& here, base::Time deadline);
  Result<base::SocketAddress> take_children(const Secret& group, const base::SocketAddress& here, base::Time deadline);
  Status reach_parent(const Secret& group, int parent, base::Time deadline);
  void tell_primary(const Header& header, Bytes bytes);

  /// Asks the primary for results, from the open call on. On the poller's thread.
  void detached(const std::string& why);

  /// A collective call.
  struct Call {
    uint32_t id = 0;      ///< the id of its exchange
    uint32_t number = 0;  ///< its place among the group's calls, from 1 on; every rank makes the same calls
  };
  /// The call that waits for its result; zeros if there is none.
  Call open_call() const;
  /// The number of the group's call with this id; 0: it is not the latest call.
  uint32_t number_of_call(uint32_t id) const;

  /// Gives a result of the primary to the children. On the poller's thread.
  void pass_on(const Frame& frame) const;

  /// Notes in passed_on_ when the children have all results. On the poller's thread.
  void finish_passing_on();

  /// A result of the parent. On the poller's thread.
  void take_result(Frame frame);

  // Exchanges. Under mutex_.

  uint32_t open_exchange();
  Result<Bytes> wait_for_answer(std::unique_lock<std::mutex>& lock, const Header& header, base::Time deadline);
  void send(const Header& header, Bytes payload);

  /// On the poller's thread.
  void send_now(const Header& header, const std::shared_ptr<const Bytes>& payload) const;

  /// Under mutex_.
  Status usable(bool ignores_failure) const;
  void fail(FailureReport report);

  // On the poller's thread.

  void receive(HubEnd& hub, Frame frame);

  /// Passes the failure on to the other hub, before that hub hears that this rank leaves because of the failure.
  void take_failure(HubEnd& hub, const Frame& frame);

  /// The first answer to a waiting exchange counts.
  void deliver(uint32_t id, Frame frame);
  void schedule_tick();
  HubEnd& other_than(const HubEnd& hub) { return hubs_.at(&hub == hubs_.data() ? kStandby : kPrimary); }

  void rely(HubEnd& hub, Rely why, std::string_view text);
  void lose(HubEnd& hub, const Loss& loss);
  std::string text_of_break(const HubEnd& hub, const Loss& loss) const;

  /// The ranks of its process are lost with the hub, unless they have left.
  void lose_last(HubEnd& hub, const Loss& loss);

  /// No hub serves any more: exchanges fail, at once or after the parent has passed on the result of the open call.
  void end(std::string text);
  /// To be called after that result, or when it can come no more.
  void end_if_due();
  void end_exchanges(std::string text);
  void take_departure(HubEnd& hub, const Frame& frame);

  /// A rank that fails tells the failure before it leaves.
  void report_departures();
  void report_failure();

  const std::shared_ptr<Poller> poller_;
  const Options options_;

  // For the poller's thread.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::array<HubEnd, 2> hubs_;
  Callbacks callbacks_;
  bool reported_ = false;
  std::set<int> departed_;
  std::vector<Departure> unreported_;
  Questions questions_;
  std::optional<std::string> due_end_;  ///< no hub serves; end() waits for the result of the open call
  Poller::Timer patience_{base::kNever, 0};
  std::shared_ptr<Branch> branch_;  ///< null before all have joined, and after this rank has left
  Poller::Timer tick_{base::kNever, 0};

  std::unique_ptr<SealedCalls> calls_;

  mutable std::mutex mutex_;  ///< guards the members below
  mutable std::condition_variable changed_;
  std::map<uint32_t, std::optional<Frame>> answers_;  ///< by the id of the waiting call
  uint32_t exchanges_ = 0;
  Call call_;  ///< the latest
  std::optional<FailureReport> failure_;
  Status over_;  ///< why nothing can be asked of the hub any more
  /// Warning of a missing standby. The first call that succeeds writes it: if a rank leaves for this cause, its peers
  /// get a failure alone.
  std::string warning_;
  bool joined_ = false;
  bool left_ = false;
  bool passed_on_ = false;     ///< this rank leaves, and its children have all results
  bool calls_failed_ = false;  ///< a collective call, and so all later ones, on every rank
  int connections_ = 0;
};

}  // namespace tutti::bootstrap
