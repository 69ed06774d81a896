// SPDX-License-Identifier: Apache-2.0
// Registered memory of a device, shared by all its connections.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "owners.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// A range of memory that the device may read and write.
struct Registration {
  MemoryRegion region;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  uint32_t memory = 0;  ///< TUTTI_MEMORY_*
  uint32_t users = 0;

  bool contains(const void* address, uint64_t size) const {
    const auto at = reinterpret_cast<uint64_t>(address);
    return at >= begin && size <= bytes && at - begin <= bytes - size;
  }
};

/// The registrations of a device. A range inside a range that is registered shares its registration, which lives until
/// its last user has gone. No registration outlives its users: the memory behind it may then be freed and used anew.
/// Threads: any.
class Registrations {
 public:
  explicit Registrations(ibv_pd* domain) : domain_(domain) {}

  /// `memory` is TUTTI_MEMORY_HOST or TUTTI_MEMORY_CUDA. kSystem with the reason of the system and the remedy.
  Result<Registration*> add(void* address, uint64_t bytes, uint32_t memory, bool relaxed_ordering);
  /// Memory behind a dmabuf descriptor, from `offset` on; `address` is the address that requests name.
  Result<Registration*> add_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd, bool relaxed_ordering);
  void remove(Registration* registration);
  size_t count() const;

 private:
  Registration* find(uint64_t begin, uint64_t bytes, uint32_t memory);
  Registration* keep(MemoryRegion region, uint64_t begin, uint64_t bytes, uint32_t memory);

  ibv_pd* domain_;
  mutable std::mutex mutex_;  // guards the map
  std::multimap<uint64_t, Registration> by_begin_;
};

}  // namespace tutti::net_ib
