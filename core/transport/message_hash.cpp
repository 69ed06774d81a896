// SPDX-License-Identifier: Apache-2.0
#include "transport/message_hash.h"

#ifdef TUTTI_HAS_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace tutti::transport {

#ifdef TUTTI_HAS_XXHASH
bool can_hash_messages() {
  return true;
}

uint64_t hash_message(const void* message, uint64_t bytes, uint64_t step) {
  return XXH3_64bits_withSeed(message, bytes, step);
}
#else
bool can_hash_messages() {
  return false;
}

uint64_t hash_message(const void*, uint64_t, uint64_t) {
  return 0;
}
#endif

}  // namespace tutti::transport
