// SPDX-License-Identifier: Apache-2.0
// The results that the ranks of a process share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "base/fork.h"
#include "bootstrap/gathered.h"
#include "bootstrap/wire.h"
#include "tutti/status.h"

namespace tutti::bootstrap {

/// The newest opened result of a group. All ranks get the same sealed bytes from a call, so one rank of a process opens
/// them for all. If the bytes of a rank differ, the rank opens its own bytes. Any thread.
class SharedResults {
 public:
  /// Opens sealed bytes.
  using Open = std::function<Result<Gathered>(std::span<const std::byte> sealed)>;

  /// One object for all ranks of this process that know the secret.
  static Result<std::shared_ptr<SharedResults>> of(const Secret& secret);

  /// The opened `sealed`, which is the result of a call of the group. `call` is the number of the call, and `members`
  /// the number of ranks of this process that share it. No rank ends the next call before all ranks have got this
  /// result, so the newest result is enough. It is forgotten when all members have got it.
  Result<Gathered> get(uint32_t call, long members, Bytes sealed, const Open& open);

 private:
  const base::Origin origin_;
  std::mutex mutex_;  ///< guards the members below
  uint32_t call_ = 0;
  long takers_ = 0;  ///< members that have got the newest result
  Bytes sealed_;
  Gathered opened_;
};

}  // namespace tutti::bootstrap
