// SPDX-License-Identifier: Apache-2.0
// The shape of a call as one hash, for comparisons with other ranks.
#pragma once

#include <cstdint>

#include "backend/call.h"

namespace tutti::backend {

/// One step of a digest: every pair of a state and a value gives a different state, except with probability 2^-64.
inline uint64_t mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9e3779b97f4a7c15u;
  return state ^ state >> 29;
}

/// The shape of a call, without its buffers and scalar; computed once for calls of one shape.
struct CallShape {
  uint64_t kind = 0;
  uint64_t count = 0;
  uint64_t hash = 0;  ///< hash of kind, count and `way`

  /// `way`: further parts that must be equal on all ranks, such as the algorithm and the protocol.
  static CallShape of(const Call& call, uint64_t way = 0);
};

}  // namespace tutti::backend
