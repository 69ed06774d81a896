// SPDX-License-Identifier: Apache-2.0
// Data movement of LL on the host: it unpacks tiles from the received slots, folds them, and packs the value into the
// slots of peers.
#include <algorithm>
#include <cstring>

#include "tutti/device/host/team.h"

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define TUTTI_LL_VECTORS 1
#endif

namespace tutti::device {
namespace {

constexpr uint32_t kMaxFan = 64;
constexpr uint64_t kTileBytes = 1024;

void store_word(uint64_t* word, uint64_t value, std::memory_order order) {
  std::atomic_ref<uint64_t>(*word).store(value, order);
}

/// Packs `bytes` of data into LL words. The last word becomes visible after all other words, and its flag signals their
/// arrival.
void pack(uint64_t* words, const uint8_t* data, uint64_t bytes, uint32_t flag) {
  uint64_t i = 0;
#ifdef TUTTI_LL_VECTORS
  const __m128i flags = _mm_set1_epi32(static_cast<int>(flag));
  // The compiler may reorder these stores, so at least one word is left for the stores with release below.
  for (; i + 16 < bytes; i += 16, words += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + i));
    _mm_store_si128(reinterpret_cast<__m128i*>(words), _mm_unpacklo_epi32(four, flags));
    _mm_store_si128(reinterpret_cast<__m128i*>(words + 2), _mm_unpackhi_epi32(four, flags));
  }
#endif
  for (; i < bytes; i += 4, ++words) {
    uint32_t value = 0;
    std::memcpy(&value, data + i, std::min<uint64_t>(4, bytes - i));
    store_word(words, LL::word(value, flag), std::memory_order_release);
  }
}

void unpack(uint8_t* data, const uint64_t* words, uint64_t bytes) {
  uint64_t i = 0;
#ifdef TUTTI_LL_VECTORS
  for (; i + 16 <= bytes; i += 16, words += 4) {
    const __m128 low = _mm_load_ps(reinterpret_cast<const float*>(words));
    const __m128 high = _mm_load_ps(reinterpret_cast<const float*>(words + 2));
    _mm_storeu_ps(reinterpret_cast<float*>(data + i), _mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
  }
#endif
  for (; i < bytes; i += 4, ++words) {
    const uint64_t word = std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(words)).load(std::memory_order_relaxed);
    const auto value = static_cast<uint32_t>(word);
    std::memcpy(data + i, &value, std::min<uint64_t>(4, bytes - i));
  }
}

void sign(const tutti_work& work, const tutti_connection& to, uint32_t flag) {
  uint64_t* words = LL::words(to);
  for (uint64_t i = 0; i < LL::kSignatureWords; ++i) {
    store_word(words + i, LL::word(work.signature.words[i], flag), std::memory_order_relaxed);
  }
}

/// Gives every word of the slot the current flag, so that no word keeps a flag that is 2^32 steps old.
void rewrite_flags(const tutti_connection& to, uint32_t flag) {
  uint64_t* words = LL::words(to);
  for (uint64_t i = 0; i < to.slot_stride / sizeof(uint64_t); ++i) {
    // The flag before the current one: no receiver waits for it, and the words of the message follow.
    store_word(words + i, LL::word(0, flag - 1), std::memory_order_relaxed);
  }
}

void open_slot(const tutti_work& work, const tutti_connection& to) {
  const uint32_t flag = LL::flag(to);
  if (LL::needs_flag_wrap(to)) [[unlikely]]
    rewrite_flags(to, flag);
  if (work.check != 0 && to.call != work.call) sign(work, to, flag);
}

}  // namespace

int32_t HostTeam::move_ll(tutti_work& work, const Operands& operands) {
  alignas(64) uint8_t tiles[(kMaxFan + 1) * kTileBytes];
  const void* sources[kMaxFan + 1];
  void* destinations[1];
  const uint64_t bytes = operands.elements * work.element_bytes;
  const bool folds = operands.recv_count + (operands.own != nullptr ? 1 : 0) > 1 || operands.scaled ||
                     (operands.final && work.divisor != 0);
  const ReduceFunction reduce = folds ? select_reduce(work.data_type, work.reduce_op) : nullptr;
  for (uint32_t i = 0; i < operands.send_count && operands.offset == 0; ++i) open_slot(work, *operands.send[i]);

  for (uint64_t done = 0; done < bytes; done += kTileBytes) {
    const uint64_t part = std::min(kTileBytes, bytes - done);
    const uint64_t word = LL::kSignatureWords + (operands.offset + done) / 4;
    ReduceCall call{
        sources, 0, 1, destinations, part / work.element_bytes, work.scalar, -1, operands.final ? work.divisor : 0};
    for (uint32_t i = 0; i <= operands.recv_count; ++i) {
      if (i == operands.own_position && operands.own != nullptr) {
        if (operands.scaled) call.scaled_source = static_cast<int32_t>(call.source_count);
        sources[call.source_count++] = operands.own + done;
      }
      if (i == operands.recv_count) break;
      uint8_t* tile = tiles + i * kTileBytes;
      unpack(tile, LL::words(*operands.recv[i]) + word, part);
      sources[call.source_count++] = tile;
    }
    const auto* value = static_cast<const uint8_t*>(sources[0]);
    uint8_t* kept = operands.output != nullptr ? operands.output + done : nullptr;
    if (folds) {
      destinations[0] = kept != nullptr ? kept : tiles + kMaxFan * kTileBytes;
      reduce(call);
      value = static_cast<const uint8_t*>(destinations[0]);
    } else if (kept != nullptr && kept != value) {
      std::memcpy(kept, value, part);
    }
    for (uint32_t i = 0; i < operands.send_count; ++i) {
      tutti_connection& to = *operands.send[i];
      pack(LL::words(to) + word, value, part, LL::flag(to));
    }
  }
  return TUTTI_OK;
}

}  // namespace tutti::device
