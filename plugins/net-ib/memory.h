// SPDX-License-Identifier: Apache-2.0
// The memory of requests: registration, keys, and the parts of a message.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "link.h"
#include "registration.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// Memory that is registered for every rail of a connection.
struct Registered {
  std::array<Registration*, kMaxRails> rails{};  ///< null: the connection has no such rail
};

/// `memory` is one TUTTI_MEMORY_* value. kUnsupported: the device of a rail cannot register it.
Result<void*> register_range(Link& link, void* address, uint64_t bytes, uint32_t memory);
Result<void*> register_dmabuf(Link& link, void* address, uint64_t bytes, uint64_t offset, int fd);
Status deregister(Link& link, void* registered);

/// The registration for a request on `bytes` bytes; null for a request without bytes. kInvalidArgument: the range is
/// not registered.
Result<const Registered*> find_registered(void* registered, const void* address, uint64_t bytes);
/// kInvalidArgument: the message is longer than the port can carry.
Status check_size(const Link& link, uint64_t bytes);

/// A message cut into parts, a whole number of lines each, so that parts begin aligned.
class Parts {
 public:
  Parts(uint64_t bytes, uint32_t most) : bytes_(bytes), part_((bytes / most + kLine - 1) / kLine * kLine) {
    if (most == 1 || part_ == 0) part_ = bytes_;
    count_ = part_ == 0 ? 1 : static_cast<uint32_t>(std::min<uint64_t>(most, (bytes_ + part_ - 1) / part_));
  }
  uint32_t count() const { return count_; }
  uint64_t begin(uint32_t part) const { return part * part_; }
  uint32_t bytes(uint32_t part) const {
    return static_cast<uint32_t>(part + 1 == count_ ? bytes_ - begin(part) : part_);
  }

 private:
  static constexpr uint64_t kLine = 64;
  uint64_t bytes_;
  uint64_t part_;
  uint32_t count_;
};

}  // namespace tutti::net_ib
