// SPDX-License-Identifier: Apache-2.0
// The meeting of all or some ranks of one communicator, in order to make a new communicator.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "nccl/environment.h"
#include "tutti/unique_id.h"

namespace tutti::nccl {

/// Gathers the data of each participant, ordered by position among the participants.
using Gather = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte>)>;

/// A rank of a communicator to be made.
struct Seat {
  UniqueId id;
  int rank = 0;
  int size = 0;
};

/// Participants with the same color share an id, ordered by key, then by position. A color below 0: no seat, of size 0.
Result<Seat> take_seat(const Gather& gather, size_t place, int color, int key, const Rendezvous& rendezvous);

/// An acceptor for each rank of a communicator, opened while all ranks are there. Some of the ranks can meet there
/// later: without the remaining ranks, without the process that made the communicator's id, and if the communicator is
/// broken.
///
/// One thread at a time.
class Doors {
 public:
  Doors() = default;
  ~Doors() { close(); }
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  /// Opens this rank's acceptor, and learns the addresses of all acceptors. All ranks call it.
  Status open(const Gather& gather, int rank, const Rendezvous& rendezvous);

  /// Runs `action` with a gather over `members` (ranks, ascending, with this rank), who all call this. Each member then
  /// gets a new acceptor. A rank that was left out once cannot be a member any more.
  Status meet(std::span<const int> members, const Rendezvous& rendezvous,
              const std::function<Status(const Gather&, size_t place)>& action);

  /// This rank's.
  void close();

 private:
  int rank_ = 0;
  std::vector<UniqueId> doors_;  // by rank; UniqueId() where one was used
};

}  // namespace tutti::nccl
