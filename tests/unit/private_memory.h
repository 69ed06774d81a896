// SPDX-License-Identifier: Apache-2.0
// Memory in place of a GPU's: an access through its address ends the process, and only a second mapping reaches it.
#pragma once

#include <cstdint>

#include "base/fd.h"

namespace tutti::test {

class PrivateMemory {
 public:
  explicit PrivateMemory(uint64_t bytes);
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  /// The address that all know and that must not be accessed.
  uint8_t* view() const { return view_; }
  /// The same memory for its owner, a GPU or a device.
  uint8_t* alias() const { return alias_; }
  uint64_t bytes() const { return bytes_; }
  bool holds(const void* address) const {
    const auto* const at = static_cast<const uint8_t*>(address);
    return at >= view_ && at < view_ + bytes_;
  }
  /// A descriptor that exports the memory from view() on.
  base::Fd exported() const;
  /// Whether the descriptor exports this memory; reads no byte of the memory.
  bool is_exported_by(int fd) const;

 private:
  uint64_t bytes_;
  base::Fd fd_;
  uint8_t* view_;
  uint8_t* alias_;
};

}  // namespace tutti::test
