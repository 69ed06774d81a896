// SPDX-License-Identifier: Apache-2.0
#include "transport/direct.h"

#include <algorithm>

#include "device/cuda/dmabuf.h"

namespace tutti::transport {
namespace {

Status not_shared() {
  return {Code::kInternal, "memory of one process was to be opened by another"};
}

Result<MessageMemory> memory_of_gpu(uint8_t* at, uint64_t bytes, int device, bool dmabuf) {
  MessageMemory memory{at, bytes, TUTTI_MEMORY_CUDA};
  if (!dmabuf) return memory;
  TUTTI_ASSIGN(cuda::Dmabuf exported, cuda::export_dmabuf(at, bytes, device));
  memory.dmabuf = std::move(exported.fd);
  memory.dmabuf_offset = exported.offset;
  return memory;
}

}  // namespace

Result<Heap::Block> DirectHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(cuda::DeviceMemory memory, cuda::DeviceMemory::create(device_, bytes));
  made_.push_back(std::move(memory));
  return Block{made_.back().data(), {}, nullptr};
}

Result<uint8_t*> DirectHeap::open(const Address&) {
  return not_shared();
}

Result<MessageMemory> DirectHeap::for_network(uint8_t* at, uint64_t bytes) {
  return memory_of_gpu(at, bytes, device_, dmabuf_);
}

Status DirectHeap::write(uint8_t* at, const void* from, uint64_t bytes) {
  const auto holds = [&](const cuda::DeviceMemory& block) {
    return at >= block.data() && at + bytes <= block.data() + block.size();
  };
  const auto block = std::find_if(made_.begin(), made_.end(), holds);
  if (block == made_.end()) return {Code::kInternal, "memory of another heap was to be written"};
  return block->fill(from, bytes, static_cast<size_t>(at - block->data()));
}

Result<Heap::Block> LentHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(cuda::LentMemory memory, cuda::LentMemory::create(owner_, user_, bytes));
  made_.push_back(std::move(memory));
  return Block{made_.back().data(), {}, nullptr};
}

Result<uint8_t*> LentHeap::open(const Address&) {
  return not_shared();
}

Result<MessageMemory> LentHeap::for_network(uint8_t* at, uint64_t bytes) {
  auto memory = memory_of_gpu(at, bytes, user_, dmabuf_);
  if (!memory.ok()) return memory.status().with_context("memory of a second GPU (net.pxn)");
  return memory;
}

}  // namespace tutti::transport
