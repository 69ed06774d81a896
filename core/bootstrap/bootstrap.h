// SPDX-License-Identifier: Apache-2.0
// The meeting of ranks: they join, agree, and learn of lost ranks. One rank's side of the hubs.
//
//   UniqueId::create() starts a hub in its process; every rank of that id then joins it over TCP. Until they leave, the
//   ranks exchange small data through the hub, and it tells all of them when a rank is lost. A standby hub in a second
//   process does the same when the first hub is gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/answer.h"
#include "bootstrap/departure.h"
#include "bootstrap/failure.h"
#include "bootstrap/gathered.h"
#include "tutti/status.h"
#include "tutti/unique_id.h"

namespace tutti::bootstrap {

/// The host and the interfaces of a rank.
struct Site {
  /// Interfaces on which the rank takes connections of other ranks, as for UniqueId::create(). Empty: at the address
  /// from which the rank reaches the hub.
  std::string interfaces = {};
  /// Name of the rank's host, which ranks may pretend. Empty: the kernel's host name.
  std::string host = {};
};

/// One rank of the group of a UniqueId. A process may have many ranks, of one group or of several.
///
/// all_gather(), barrier() and broadcast() are collective: every rank makes the same calls in the same order, from one
/// thread at a time. A call fails with kMismatch if ranks make different calls. It fails with kRemote if a rank has
/// left or announced to leave, and with kTimeout if a rank does not call before the first deadline. In these cases it
/// fails on every rank, with a text that names the ranks, and so does every later call.
///
/// The bytes that ranks give are sealed with the id's secret. If they are changed on their way, the calls of the ranks
/// that get them fail (kMismatch). A failure of the group (FailureReport) ends calls at once. All other functions are
/// for any thread.
class Bootstrap {
 public:
  /// Most bytes of a call: the bytes that all ranks give together, and 32 bytes more for each rank.
  static constexpr size_t kMaxBytes = 64u << 20;
  static constexpr size_t kMaxQuestionBytes = 64u << 10;
  static constexpr size_t kMaxAnswerBytes = 64u << 10;
  /// How long a host may be silent without any failure. A longer silence fails the group, after at most twice this time
  /// and a second. The death of a process is known in milliseconds.
  static constexpr base::Milliseconds kPeerLoss{10000};

  struct Callbacks {
    /// The group failed; called at most once.
    std::function<void(const FailureReport&)> on_failure = {};
    /// This rank's answer to a question that a rank, perhaps this rank, asks by query() or ask().
    std::function<Bytes(std::span<const std::byte> question)> answer = {};
    /// A rank makes no further call; called once for each such rank.
    std::function<void(const Departure&)> on_departure = {};
    /// Called every `tick`, unless `tick` is 0.
    std::function<void()> on_tick = {};
    base::Milliseconds tick{0};
  };

  /// Returns when all `rank_count` ranks have joined. Errors, the same on every rank: kTimeout (names the ranks that
  /// never came), kInvalidArgument (a rank outside 0..rank_count-1, or there twice), kMismatch (different rank_count),
  /// kVersionMismatch, kRemote (a rank died, the hub is gone or has another secret).
  ///
  /// If the ranks live in several processes, one rank starts a standby hub and all others join it, too. If a rank
  /// cannot reach the standby, all go on without one, and rank 0 warns after the first call that succeeds. In groups
  /// of several hosts and at least kLeastRanksOfTree ranks, ranks pass long results on to each other (result_tree.h).
  /// If a rank cannot reach its parent there, the hub sends it the results, and the hub's process warns once.
  static Result<std::unique_ptr<Bootstrap>> join(const UniqueId& id, int rank, int rank_count, base::Time deadline,
                                                 base::Milliseconds peer_loss = kPeerLoss, const Site& site = {});
  /// Leaves.
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int size() const;

  /// The values of all ranks, by rank; lengths may differ.
  Result<Gathered> all_gather(std::span<const std::byte> mine, base::Time deadline);
  /// The value of `root`; `bytes` of all other ranks is ignored.
  Result<std::vector<std::byte>> broadcast(int root, std::span<const std::byte> bytes, base::Time deadline);
  Status barrier(base::Time deadline);

  /// Replaces the callbacks; when it returns, the old ones do not run and will not. They run on a background thread
  /// shared by all bootstraps of the process, so they must be short, not throw, and call only failure(), ask()
  /// and post_abort() here. A failure or a departure that has happened already is reported at once.
  void set_callbacks(Callbacks callbacks);
  /// The failure of the group, if it has failed. Leaving is no failure, of a rank or of the hub.
  std::optional<FailureReport> failure() const;
  /// The same, after a wait until the group fails or the deadline passes.
  std::optional<FailureReport> wait_for_failure(base::Time deadline) const;
  /// Whether the group has failed, or a collective call has: every rank gets that failure without further ado.
  bool all_know_failure() const;
  /// Whether news of other ranks still arrive. False once the hub has closed, which is no failure.
  bool hears() const;
  /// Fails the group on every rank, here before it returns. Later failures change nothing.
  void post_abort(std::string_view text);
  /// The answers of all ranks' Callbacks::answer to the question, by rank. Works also after a failure, as long as one
  /// hub exists, and while the process of one hub is stopped. A question has at most kMaxQuestionBytes, an answer at
  /// most kMaxAnswerBytes.
  Result<std::vector<Answer>> query(std::span<const std::byte> question, base::Time deadline);
  /// The same without waiting: `done` is called on the background thread. set_callbacks() and leave() drop open
  /// questions.
  using Answered = std::function<void(Result<std::vector<Answer>>)>;
  void ask(std::span<const std::byte> question, base::Time deadline, Answered done);

  /// Tells the other ranks that this rank makes no further call on its communicator, and which calls it has made.
  /// leave() is to follow. In between, all_gather(), broadcast() and barrier() meet only ranks that have announced the
  /// same.
  void announce(const Ending& ending);
  /// Announces the departure of this rank, so that its peers do not take it for lost. Does not wait for other ranks.
  /// Departures that the hub knew before are still reported. Calls made after it fail; no callback runs after it.
  void leave();

 private:
  class Client;
  explicit Bootstrap(std::unique_ptr<Client> client);
  std::unique_ptr<Client> client_;
};

}  // namespace tutti::bootstrap
