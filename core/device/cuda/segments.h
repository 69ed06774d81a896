// SPDX-License-Identifier: Apache-2.0
// Memory that was mapped piece by piece (cuMemCreate, cuMemMap), as pools make it that grow: other processes map its
// pieces by file descriptors.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd_post.h"
#include "device/cuda/runtime.h"

namespace tutti::cuda {

/// The pieces that a range of addresses lies in.
struct Segments {
  std::vector<base::Fd> files;         ///< one file per piece, in order
  std::vector<const uint8_t*> begins;  ///< address of each mapped piece in this process
  std::vector<uint64_t> bytes;         ///< of each
  uint64_t offset = 0;                 ///< offset of the range in the first piece
};

/// kUnsupported if the range is no memory of this sort, or if CUDA gives no file for a piece: its creator must have
/// requested CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
Result<Segments> export_segments(const void* begin, uint64_t bytes, int device);

/// Pieces of a different rank, one behind the other, readable and writable by `device`. One thread at a time.
class MappedSegments {
 public:
  static Result<MappedSegments> map(const base::FdPost::Parcel& pieces, int device);
  uint8_t* data() const { return memory_.get(); }

 private:
  struct Unmap {
    uint64_t reserved;
    uint64_t mapped;  // mapped bytes, from the beginning
    int device;
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t, Unmap> memory_;
};

}  // namespace tutti::cuda
