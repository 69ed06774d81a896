// SPDX-License-Identifier: Apache-2.0
// A later meeting of some ranks of a communicator.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/socket.h"
#include "bootstrap/bootstrap.h"

namespace tutti::bootstrap {

class Hub;
class Poller;

/// A meeting place of each rank, opened while all ranks are there. Some of the ranks can meet later at such a place:
/// without the remaining ranks, without the hubs of the communicator, and if the communicator is broken. The ranks of a
/// process share one listener, which takes connections at a low rate until ranks meet.
///
/// One thread at a time.
class Reunion {
 public:
  /// Opens the place of this rank. `interfaces`: as for UniqueId::create().
  static Result<std::unique_ptr<Reunion>> open(int rank, const std::string& interfaces);
  ~Reunion();
  Reunion(const Reunion&) = delete;
  Reunion& operator=(const Reunion&) = delete;

  /// The place of this rank.
  const UniqueId& place() const { return place_; }
  /// Learns the places of all ranks, by rank.
  void learn(std::vector<UniqueId> places) { places_ = std::move(places); }

  /// Joins the other `members`: ranks in ascending order, this rank included. Each member calls meet() and then
  /// renew(). In the group that meets, a member has its position among the members as its rank. Each meeting takes one
  /// place of a member, also a meeting that fails. Errors: as Bootstrap::join(), kFailedPrecondition (no place is
  /// left).
  Result<std::unique_ptr<Bootstrap>> meet(std::span<const int> members, base::Time deadline,
                                          base::Milliseconds peer_loss);
  /// Gives each member a new place. A rank that was no member does not learn it, and cannot meet these ranks again. If
  /// the call fails, the members have their earlier places.
  Status renew(Bootstrap& meeting, std::span<const int> members, base::Time deadline);

 private:
  Reunion(int rank, std::string interfaces, std::shared_ptr<Poller> poller);
  Status open_place();
  void release(const std::weak_ptr<Hub>& unused);
  UniqueId& place_of(int rank) { return places_[static_cast<size_t>(rank)]; }

  const int rank_;
  const std::string interfaces_;
  const std::shared_ptr<Poller> poller_;
  UniqueId place_;
  std::weak_ptr<Hub> hub_;        ///< of place_, until ranks meet there
  std::vector<UniqueId> places_;  ///< by rank; UniqueId() where ranks have met
};

}  // namespace tutti::bootstrap
