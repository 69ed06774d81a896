// SPDX-License-Identifier: Apache-2.0
#include "transport/direct.h"

#include "device/cuda/dmabuf.h"

namespace tutti::transport {

Result<Heap::Block> DirectHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(cuda::DeviceMemory memory, cuda::DeviceMemory::create(device_, bytes));
  made_.push_back(std::move(memory));
  return Block{made_.back().data(), {}, nullptr};
}

Result<uint8_t*> DirectHeap::open(const Address&) {
  return Status(Code::kInternal, "memory of one process was to be opened by another");
}

Result<MessageMemory> DirectHeap::for_network(uint8_t* at, uint64_t bytes) {
  MessageMemory memory{at, bytes, TUTTI_MEMORY_CUDA};
  if (!dmabuf_) return memory;
  TUTTI_ASSIGN(cuda::Dmabuf exported, cuda::export_dmabuf(at, bytes, device_));
  memory.dmabuf = std::move(exported.fd);
  memory.dmabuf_offset = exported.offset;
  return memory;
}

}  // namespace tutti::transport
