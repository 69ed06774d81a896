// SPDX-License-Identifier: Apache-2.0
// Memory that GPUs of other ranks store to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tutti/status.h"

namespace tutti::transport {

/// One rank's memory of a kind, and what it sees of other ranks' memory of that kind. One thread at a time.
class Heap {
 public:
  /// How another rank finds a block. Plain data; what it means is the kind's own.
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
  /// Of this rank; zero at first; stays for as long as the heap.
  virtual Result<Block> make(uint64_t bytes) = 0;
  /// A block of another rank, as this rank's GPU sees it, until close().
  virtual Result<uint8_t*> open(const Address& address) = 0;
  /// Gives back all that was opened. Nothing on this rank's GPU uses it any more.
  virtual void close() = 0;
};

}  // namespace tutti::transport
