// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/scratch_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::backend {

Result<uint8_t*> ScratchMemory::reserve(uint64_t bytes) {
  if (bytes <= bytes_) return data_;
  uint64_t wanted = std::max(bytes, 2 * bytes_);
  auto made = allocate_(wanted);
  if (!made.ok() && wanted > bytes) made = allocate_(wanted = bytes);
  if (!made.ok()) {
    return made.status().with_context(fmt::format(
        "the algorithm needs a scratch buffer of {} bytes on the GPU; make smaller calls, or choose another "
        "algorithm",
        bytes));
  }
  data_ = *made;
  bytes_ = wanted;
  return data_;
}

}  // namespace tutti::backend
