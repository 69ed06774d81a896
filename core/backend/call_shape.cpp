// SPDX-License-Identifier: Apache-2.0
#include "backend/call_shape.h"

namespace tutti::backend {

CallShape CallShape::of(const Call& call, uint64_t way) {
  const uint64_t kind = call.kind();
  return {kind, call.count, mix(mix(mix(0, kind), call.count), way)};
}

}  // namespace tutti::backend
