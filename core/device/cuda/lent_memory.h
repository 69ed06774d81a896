// SPDX-License-Identifier: Apache-2.0
// Memory of a second GPU that this process's GPU reads and writes, for messages of a network port near the second GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/runtime.h"

namespace tutti::cuda {

/// Why the GPU at `owner` does not lend memory to GPU `user`; empty: it does, as a trial shows. `dmabuf`: the memory is
/// to be exported as a dmabuf; otherwise devices are to access it by its address.
Result<std::string> why_not_lent(const PciAddress& owner, int user, bool dmabuf);

/// Memory of one GPU for a different GPU; zero at first. Given back with the last copy of this object. The process gets
/// no context on the owner. Neither allocation nor release waits for kernels.
class LentMemory {
 public:
  LentMemory() = default;
  /// `bytes` is rounded up to the unit of the owner, 2 MiB as a rule. kDevice with the call that failed; kUnsupported
  /// if the driver has no such memory.
  static Result<LentMemory> create(int owner, int user, uint64_t bytes);
  /// As GPU `user` sees it.
  uint8_t* data() const;
  uint64_t size() const;

 private:
  class Mapping;
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace tutti::cuda
