// SPDX-License-Identifier: Apache-2.0
#include "transport/p2p.h"

namespace tutti::transport {

Result<Heap::Block> P2pHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(cuda::DeviceMemory memory, cuda::DeviceMemory::create(device_, bytes));
  TUTTI_ASSIGN(const cuda::MemoryAddress address, cuda::export_memory(memory.data(), memory.size(), device_));
  made_.push_back(std::move(memory));
  return Block{made_.back().data(), Address::of(address), nullptr};
}

Result<uint8_t*> P2pHeap::open(const Address& address) {
  TUTTI_ASSIGN(cuda::PeerMemory memory, cuda::PeerMemory::import(address.as<cuda::MemoryAddress>(), device_));
  opened_.push_back(std::move(memory));
  return opened_.back().data();
}

}  // namespace tutti::transport
