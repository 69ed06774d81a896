// SPDX-License-Identifier: Apache-2.0
#include "transport/line_slot.h"

// ThreadSanitizer takes streaming stores for plain stores.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define TUTTI_STREAMS_LINES
#endif

namespace tutti::transport {
namespace {

constexpr uint32_t kStreamedLines = 8;  // two lines of a cache, at least

uint64_t data_of(const uint8_t* line) {
  uint64_t data = 0;
  std::memcpy(&data, line, sizeof data);
  return data;
}
uint64_t low_word(uint64_t data, uint32_t flag) {
  return uint64_t{flag} << 32 | static_cast<uint32_t>(data);
}
uint64_t high_word(uint64_t data, uint32_t flag) {
  return uint64_t{flag} << 32 | data >> 32;
}

}  // namespace

void LineSlot::put(uint32_t first, uint32_t count, uint32_t flag, const uint8_t* from) const {
#if defined(TUTTI_STREAMS_LINES)
  if (count >= kStreamedLines) return stream(first, count, flag, from);
#endif
  for (uint32_t line = first; line < first + count; ++line, from += kDataBytes) {
    const uint64_t data = data_of(from);
    store(2 * line, low_word(data, flag));
    store(2 * line + 1, high_word(data, flag));
  }
}

#if defined(TUTTI_STREAMS_LINES)
/// The GPU polls all lines meanwhile. A usual store would wait until the processor owns the line of its cache, again
/// and again. Streaming stores go to memory; each 8 bytes arrive as a whole.
void LineSlot::stream(uint32_t first, uint32_t count, uint32_t flag, const uint8_t* from) const {
  for (uint32_t line = first; line < first + count; ++line, from += kDataBytes) {
    const uint64_t data = data_of(from);
    const __m128i words =
        _mm_set_epi64x(static_cast<int64_t>(high_word(data, flag)), static_cast<int64_t>(low_word(data, flag)));
    _mm_stream_si128(reinterpret_cast<__m128i*>(words_ + 2 * size_t{line}), words);
  }
  _mm_sfence();
}
#endif

}  // namespace tutti::transport
