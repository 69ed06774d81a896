// SPDX-License-Identifier: Apache-2.0
#include "transport/pinned.h"

namespace tutti::transport {

Result<Heap::Block> PinnedHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(cuda::MappedMemory memory, cuda::MappedMemory::create(bytes));
  made_.push_back(std::move(memory));
  return Block{static_cast<uint8_t*>(made_.back().on_device()), {}, static_cast<uint8_t*>(made_.back().on_host())};
}

Result<uint8_t*> PinnedHeap::open(const Address&) {
  return Status(Code::kInternal, "memory of one process was to be opened by another");
}

}  // namespace tutti::transport
