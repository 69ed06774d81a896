// SPDX-License-Identifier: Apache-2.0
// How the ranks of one communicator, or some of them, find together to make another.
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

/// What each of those that take part gave, by place among them.
using Gather = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte>)>;

/// A rank of a communicator to be made.
struct Seat {
  UniqueId id;
  int rank = 0;
  int size = 0;
};

/// Those that give the same color share an id, ordered by key, then by place. A color below 0: no seat, of size 0.
Result<Seat> take_seat(const Gather& gather, size_t place, int color, int key, const Rendezvous& rendezvous);

/// A door for each rank of a communicator, opened while all are there: some of them can meet at it later, without the
/// others, without whoever made the communicator's id, and when the communicator is broken.
///
/// One thread at a time.
class Doors {
 public:
  Doors() = default;
  ~Doors() { close(); }
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  /// Opens this rank's, and learns the others'. All ranks call it.
  Status open(const Gather& gather, int rank, const Rendezvous& rendezvous);

  /// Runs `action` with a gather over `members` (ranks, ascending, this one among them), who all call this. Each gets a
  /// new door then; who was left out once cannot be a member any more.
  Status meet(std::span<const int> members, const Rendezvous& rendezvous,
              const std::function<Status(const Gather&, size_t place)>& action);

  /// This rank's.
  void close();

 private:
  int rank_ = 0;
  std::vector<UniqueId> doors_;  // by rank; UniqueId() where one was used
};

}  // namespace tutti::nccl
