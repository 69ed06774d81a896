// SPDX-License-Identifier: Apache-2.0
#include "transport/staged.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kPage = 4096;

/// The begin of a block in its arena: lines of GPUs are longer than the alignment of an arena.
uint8_t* aligned(uint8_t* at) {
  const auto rest = reinterpret_cast<uintptr_t>(at) % kPage;
  return rest == 0 ? at : at + (kPage - rest);
}

}  // namespace

Result<StagedHeap::Mapping> StagedHeap::map(memory::Arena arena) {
  const std::span<uint8_t> bytes = arena.bytes();
  uint8_t* const first = aligned(bytes.data());
  const auto size = static_cast<size_t>(bytes.data() + bytes.size() - first) / kPage * kPage;
  TUTTI_ASSIGN(cuda::RegisteredMemory registered, cuda::RegisteredMemory::create(first, size));
  return Mapping{std::move(arena), std::move(registered)};
}

Result<Heap::Block> StagedHeap::make(uint64_t bytes) {
  TUTTI_ASSIGN(memory::Arena arena, memory::Arena::create(bytes + kPage));
  TUTTI_ASSIGN(Mapping mapping, map(std::move(arena)));
  made_.push_back(std::move(mapping));
  return Block{made_.back().registered.on_device(), Address::of(made_.back().arena.address()), nullptr};
}

Result<uint8_t*> StagedHeap::open(const Address& address) {
  TUTTI_ASSIGN(memory::Arena arena, memory::Arena::open(address.as<memory::ArenaAddress>()));
  TUTTI_ASSIGN(Mapping mapping, map(std::move(arena)));
  opened_.push_back(std::move(mapping));
  return opened_.back().registered.on_device();
}

}  // namespace tutti::transport
