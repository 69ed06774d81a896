// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU as a Linux dmabuf, through which a device such as a network card can access it.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "tutti/status.h"

namespace tutti::cuda {

struct Dmabuf {
  base::Fd fd;
  uint64_t offset = 0;  ///< offset of the requested memory in the dmabuf
};

/// Whether the GPU and its driver export dmabufs.
bool exports_dmabufs(int device);
/// Exports the pages that hold `bytes` from `begin` on. kUnsupported where the GPU or its driver exports none.
Result<Dmabuf> export_dmabuf(const void* begin, uint64_t bytes, int device);

}  // namespace tutti::cuda
