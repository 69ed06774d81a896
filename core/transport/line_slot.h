// SPDX-License-Identifier: Apache-2.0
// A slot of a GPU with flags in the data (TUTTI_FLAGS_PAIRS of tutti/plugin/protocol.h), as the host sees it. A GPU
// loads and stores the slot meanwhile.
//
// A *line* is 16 bytes: two words, each with 4 bytes of data and a flag of 4 bytes. Flags are numbers modulo 2^32, and
// words keep flags of old messages. So the flags of a slot must be rewritten once in each *period* of 2^30 messages:
// otherwise an old flag might look new. For the slots that a GPU fills, the GPU does it (device/cuda/flag_wrap.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

namespace tutti::transport {

class LineSlot {
 public:
  static constexpr uint64_t kLineBytes = 16;
  static constexpr uint64_t kDataBytes = 8;  // of a line
  static constexpr uint32_t period_of(uint32_t number) { return number >> 30; }

  LineSlot(uint8_t* slot, uint32_t lines) : words_(reinterpret_cast<uint64_t*>(slot)), lines_(lines) {}

  /// The flag of the slot's first word.
  uint32_t flag() const { return flag_of(load(0)); }
  /// Whether both words of a line have the flag.
  bool has(uint32_t line, uint32_t flag) const {
    return line < lines_ && flag_of(load(2 * line)) == flag && flag_of(load(2 * line + 1)) == flag;
  }
  /// Copies the data of lines from `first` on that have the flag, up to the first line that lacks it, `most` at most.
  /// Returns the number of these lines.
  uint32_t take(uint32_t first, uint32_t most, uint32_t flag, uint8_t* to) const {
    const uint32_t end = most < lines_ - first ? first + most : lines_;
    uint32_t line = first;
    for (; line < end; ++line, to += kDataBytes) {
      const uint64_t low = load(2 * line);
      const uint64_t high = load(2 * line + 1);
      if (flag_of(low) != flag || flag_of(high) != flag) break;
      const uint64_t data = high << 32 | static_cast<uint32_t>(low);
      std::memcpy(to, &data, sizeof data);
    }
    return line - first;
  }
  /// Stores the data of `count` lines with the flag.
  void put(uint32_t first, uint32_t count, uint32_t flag, const uint8_t* from) const;
  /// Rewrites all flags, before any line of message `number` is stored.
  void rewrite_flags(uint32_t number) const {
    for (uint32_t word = 0; word < 2 * lines_; ++word) store(word, uint64_t{number} << 32 | number);
  }

 private:
  void stream(uint32_t first, uint32_t count, uint32_t flag, const uint8_t* from) const;

  // Data and flag share a word, so no order between words is needed.
  uint64_t load(uint32_t word) const { return std::atomic_ref<uint64_t>(words_[word]).load(std::memory_order_relaxed); }
  void store(uint32_t word, uint64_t value) const {
    std::atomic_ref<uint64_t>(words_[word]).store(value, std::memory_order_relaxed);
  }
  static uint32_t flag_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

  uint64_t* words_;
  uint32_t lines_;
};

}  // namespace tutti::transport
