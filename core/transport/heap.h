// SPDX-License-Identifier: Apache-2.0
// Memory that GPUs of other ranks store to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/fd.h"
#include "tutti/plugin/abi.h"
#include "tutti/status.h"

namespace tutti::transport {

/// Memory that messages of a network are sent from, or received into.
struct MessageMemory {
  void* address = nullptr;
  uint64_t bytes = 0;
  uint32_t kind = TUTTI_MEMORY_HOST;  ///< TUTTI_MEMORY_HOST or TUTTI_MEMORY_CUDA
  base::Fd dmabuf{};                  ///< exports the memory of a GPU; not valid: the network takes pointers
  uint64_t dmabuf_offset = 0;         ///< of `address`
};

/// One rank's memory of a kind, and its view of other ranks' memory of this kind. One thread at a time.
class Heap {
 public:
  /// The address of a block for a different rank. Plain data; each kind defines its meaning.
  struct Address {
    std::array<std::byte, 128> bytes = {};

    template <class T>
    static Address of(const T& value) {
      static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes);
      Address address;
      std::memcpy(address.bytes.data(), &value, sizeof value);
      return address;
    }
    template <class T>
    T as() const {
      static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes);
      T value;
      std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    }
  };
  struct Block {
    uint8_t* data = nullptr;  ///< as this rank's GPU sees it
    Address address;
    uint8_t* on_host = nullptr;  ///< as its process sees it; null where that does not
  };

  virtual ~Heap() = default;
  /// A block of this rank; zero at first; it exists as long as the heap.
  virtual Result<Block> make(uint64_t bytes) = 0;
  /// A block of a different rank, as an address of this rank's GPU, until close().
  virtual Result<uint8_t*> open(const Address& address) = 0;
  /// The memory that a network registers to access `bytes` of a block. `at`: an address of the process, or an address
  /// of the GPU if the process does not map the block. By default memory of the host.
  virtual Result<MessageMemory> for_network(uint8_t* at, uint64_t bytes) { return MessageMemory{at, bytes}; }
  /// Copies `bytes` of the host to a block of this rank. By default kInternal: only kinds that need it copy.
  virtual Status write(uint8_t* /*at*/, const void* /*from*/, uint64_t /*bytes*/) {
    return {Code::kInternal, "the host does not write memory of this kind"};
  }
  /// Closes all blocks that were opened. This rank's GPU does not use them any more.
  virtual void close() = 0;
};

}  // namespace tutti::transport
