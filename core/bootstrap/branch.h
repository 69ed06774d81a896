// SPDX-License-Identifier: Apache-2.0
// The connections by which a rank receives results from its parent, and passes them on to its children.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bootstrap/acceptor.h"
#include "bootstrap/result_tree.h"

namespace tutti::bootstrap {

/// A rank's place in the result tree. No result is lost with a parent: the primary keeps the latest result, and sends
/// it to a rank whose parent is gone. The parts of the calls of Bootstrap are sealed, so a parent cannot change them
/// unseen.
///
/// Everything here runs on the poller's thread.
class Branch : public std::enable_shared_from_this<Branch> {
 public:
  struct Events {
    /// A kResult of the parent.
    std::function<void(Frame)> received;
    /// The parent sends no more results. The text is empty if the parent closed the connection: the hubs tell why a
    /// process ended.
    std::function<void(const std::string& why)> detached;
  };
  struct Options {
    BranchRole role;
    int rank;
    int rank_count;
    base::Milliseconds peer_loss;
  };
  Branch(Poller& poller, Options options, Events events);
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  /// The secret of the branch of a rank, made from the group's secret. An acceptor may serve several branches and a hub
  /// of one group.
  static Result<Secret> secret_of(const Secret& group, int rank);

  /// Takes the children until all have come, or until the deadline.
  Status open(std::shared_ptr<Acceptor> acceptor, const Secret& secret, base::Time deadline);
  /// Receives results over this connection to the parent.
  void attach(base::Fd socket);
  /// Receives results from the parent in this process, without a connection. False if the branch with this secret is
  /// not in this process.
  bool attach_here(const Secret& secret);
  /// Whether results come from the parent.
  bool attached() const { return attached_; }
  /// Takes no more results of the parent, and reports it with this text. Does nothing without a parent.
  void detach(const std::string& why);
  /// Sends the result of the group's call of this number to the children that have come. Numbers that were passed on
  /// before, and short results, are left out.
  void pass_on(uint32_t call, const Bytes& result);
  /// Calls `done` once the connections to children have taken all results, at once or later.
  void when_passed_on(const std::function<void()>& done) const;

 private:
  Status admit(const std::shared_ptr<Link>& link, const Hello& hello);
  void end_when_complete();
  void hear_parent(Frame frame);
  void close_room();

  Poller& poller_;
  const Options options_;
  const Events events_;
  std::shared_ptr<Acceptor> acceptor_;  ///< null unless children are awaited
  Tag tag_ = {};
  Poller::Timer closing_{base::kNever, 0};
  bool attached_ = false;
  std::shared_ptr<Link> parent_;  ///< null without a parent, and if the parent is in this process
  std::weak_ptr<Branch> parent_here_;
  std::map<int, std::shared_ptr<Link>> children_;  ///< by rank; links that broke stay, closed
  std::map<int, std::weak_ptr<Branch>> children_here_;
  uint32_t passed_ = 0;  ///< the latest call whose result was passed on
};

}  // namespace tutti::bootstrap
