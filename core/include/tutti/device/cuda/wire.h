// SPDX-License-Identifier: Apache-2.0
// The wire formats with flags in the data, from the view of one GPU thread: 16 bytes of a slot at a time. For nvcc.
//
//   LL     Two words of 4 bytes of data and a 4-byte flag. Any thread stores them alone. Half the bandwidth.
//   LL128  Eight threads make a line of 128 bytes: 120 bytes of data and an 8-byte flag. As in NCCL 2. A warp's store
//          of a whole line must arrive as a whole. NVLink guarantees this, PCI does not.
//          Eight threads store a line at once only if their warp is converged. A barrier of the eight threads brings
//          them together, but the machine code may separate them directly after it. So the whole warp stays converged
//          all the time, also past the end of a message.
//
// The flag is the message's number + 1. A word of an earlier message therefore never looks new.
//
// Threads: each function works for the calling thread; meet() and all_arrived() need all threads of a group of
// kTogether threads.
#pragma once

#include "tutti/device/cuda/instructions.h"
#include "tutti/device/cuda/pack.h"

namespace tutti::device {

inline constexpr uint32_t kWireBytes = 16;  // bytes of a slot per thread and access

/// A place is the data that one thread moves at a time. Place i of a message lies 16 · i bytes into the slot.
struct LLWire {
  static constexpr uint32_t kDataBytes = 8;   // bytes of data in a place
  static constexpr uint32_t kTogether = 1;    // threads of a group: they execute together and move neighbouring places
  static constexpr bool kLoadsAgain = false;  // the loaded data is complete if its flags match
  static constexpr uint32_t kInFlight = 1;    // places that a thread loads at once: messages are short
  static constexpr uint32_t kThreads = 512;   // per CTA, at most
  template <class T>
  using Data = Pack<T, kDataBytes>;

  __device__ static uint32_t places(uint32_t bytes) { return (bytes + 7) / 8; }
  __device__ static uint32_t offset(uint32_t place) { return place * 8; }
  /// Bytes of the message's first `bytes` bytes from this place on. 0 or less: the place lies past the end.
  __device__ static int32_t bytes_at(uint32_t place, uint32_t bytes) {
    return static_cast<int32_t>(bytes - offset(place));
  }
  __device__ static bool is_whole(uint32_t place, uint32_t bytes) { return offset(place) + 8 <= bytes; }
  /// Loads a whole place. Its address is a multiple of 8.
  template <class T>
  __device__ __forceinline__ static Data<T> load_whole(const uint8_t* data, uint32_t place) {
    return {{*reinterpret_cast<const uint64_t*>(data + offset(place))}};
  }
  template <class T>
  __device__ __forceinline__ static void store_whole(uint8_t* data, uint32_t place, const Data<T>& value) {
    *reinterpret_cast<uint64_t*>(data + offset(place)) = value.words[0];
  }

  template <class T>
  __device__ __forceinline__ static WireWord encode(const Data<T>& data, uint32_t /*place*/, uint32_t flag) {
    const uint64_t high = uint64_t{flag} << 32;
    return {high | static_cast<uint32_t>(data.words[0]), high | (data.words[0] >> 32)};
  }
  __device__ __forceinline__ static bool arrived(const WireWord& word, uint32_t /*place*/, uint32_t flag) {
    return static_cast<uint32_t>(word.low >> 32) == flag && static_cast<uint32_t>(word.high >> 32) == flag;
  }
  /// Converges the threads of a group.
  __device__ __forceinline__ static void meet() {}
  /// Whether `mine` holds for all threads of a group.
  __device__ __forceinline__ static bool all_arrived(bool mine) { return mine; }
  template <class T>
  __device__ __forceinline__ static Data<T> decode(const WireWord& word) {
    Data<T> data;
    data.words[0] = (word.high << 32) | (word.low & 0xffffffffu);
    return data;
  }
};

struct LL128Wire {
  static constexpr uint32_t kDataBytes = 16;
  static constexpr uint32_t kTogether = 32;
  // The loads of one line by eight threads are separate accesses. Only data that is loaded after the flag was seen is
  // certainly new.
  static constexpr bool kLoadsAgain = true;
  static constexpr uint32_t kInFlight = 4;
  static constexpr uint32_t kThreads = 384;  // with more threads, each would have too few registers
  static constexpr uint32_t kLineThreads = 8;
  static constexpr uint32_t kLineData = 120;
  template <class T>
  using Data = Pack<T, kDataBytes>;

  __device__ static uint32_t places(uint32_t bytes) { return (bytes + kLineData - 1) / kLineData * kLineThreads; }
  __device__ static uint32_t offset(uint32_t place) { return place / 8 * kLineData + place % 8 * 16; }
  __device__ static bool has_flag(uint32_t place) { return place % 8 == 7; }
  __device__ static int32_t bytes_at(uint32_t place, uint32_t bytes) {
    const auto left = static_cast<int32_t>(bytes - offset(place));
    return has_flag(place) && left > 8 ? 8 : left;
  }
  __device__ static bool is_whole(uint32_t place, uint32_t bytes) {
    return offset(place) + (has_flag(place) ? 8 : 16) <= bytes;
  }
  template <class T>
  __device__ __forceinline__ static Data<T> load_whole(const uint8_t* data, uint32_t place) {
    const auto* const words = reinterpret_cast<const uint64_t*>(data + offset(place));
    Data<T> value;
    value.words[0] = words[0];
    if (!has_flag(place)) value.words[1] = words[1];
    return value;
  }
  template <class T>
  __device__ __forceinline__ static void store_whole(uint8_t* data, uint32_t place, const Data<T>& value) {
    auto* const words = reinterpret_cast<uint64_t*>(data + offset(place));
    words[0] = value.words[0];
    if (!has_flag(place)) words[1] = value.words[1];
  }

  template <class T>
  __device__ __forceinline__ static WireWord encode(const Data<T>& data, uint32_t place, uint32_t flag) {
    return {data.words[0], has_flag(place) ? uint64_t{flag} : data.words[1]};
  }
  __device__ __forceinline__ static bool arrived(const WireWord& word, uint32_t place, uint32_t flag) {
    return !has_flag(place) || word.high == flag;
  }
  __device__ __forceinline__ static void meet() { __syncwarp(); }
  __device__ __forceinline__ static bool all_arrived(bool mine) { return __all_sync(0xffffffffu, mine) != 0; }
  template <class T>
  __device__ __forceinline__ static Data<T> decode(const WireWord& word) {
    Data<T> data;
    data.words[0] = word.low;
    data.words[1] = word.high;
    return data;
  }
};

}  // namespace tutti::device
