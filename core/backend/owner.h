// SPDX-License-Identifier: Apache-2.0
// The communicator, as its back end sees it: failures, and the knowledge of other ranks.
#pragma once

#include <optional>
#include <string>

#include "backend/attendance.h"
#include "backend/call.h"
#include "tutti/status.h"

namespace tutti::backend {

/// The first failure of a communicator holds: every later call returns it. All functions are for calls that do not go
/// well, or for back ends that are asynchronous. failure(), has_failed() and fail_everywhere(): any thread. The other
/// functions: the thread that makes calls.
class Owner {
 public:
  /// The failure that holds, for a call that returns it.
  virtual Status failure() const = 0;
  virtual bool has_failed() const = 0;
  /// Breaks the communicator, tells the other ranks why, and logs it: this rank detected it. Returns the failure that
  /// holds.
  virtual Status fail_everywhere(const Status& failure) = 0;
  /// failure(), after a check of Backend::fault().
  virtual Status check_device() = 0;
  /// The end of an action of this rank. A failure of this rank alone breaks the communicator, because its peers wait
  /// for it.
  virtual Status settle(const Status& done) = 0;
  /// The failure of the group, which may be about to be told. Ok if none comes soon.
  virtual Status told_failure() = 0;

  /// A rank left without its part in `call`, which is not made, as no later call is. Returns the failure that holds.
  /// The remaining ranks find the same by themselves, once they have ended their earlier calls.
  virtual Status miss(const Absence& absence, const Call& call) = 0;
  /// A rank left without its part in a call that has returned. Fails everywhere, since earlier calls are ended as well.
  virtual Status miss(const Absence& absence) = 0;
  /// Breaks the communicator if a rank that left made other calls than this rank, as far as both have come.
  virtual Status check_departed() = 0;

  /// Ask all ranks: the difference between their calls, and "; rank 0 is in call 16, ...", of all ranks.
  virtual std::optional<std::string> difference(const Turn& turn) = 0;
  virtual std::string states(const Turn& turn) = 0;

 protected:
  ~Owner() = default;
};

}  // namespace tutti::backend
