// SPDX-License-Identifier: Apache-2.0
// The checksum of a message (check.data): XXH3 of xxHash, 64 bits.
#pragma once

#include <cstdint>

namespace tutti::transport {

/// Whether this build has xxHash.
bool can_hash_messages();

/// The checksum of the bytes of message number `step`; 0 if this build has no xxHash. Equal messages of different
/// numbers differ. Any thread.
uint64_t hash_message(const void* message, uint64_t bytes, uint64_t step);

}  // namespace tutti::transport
