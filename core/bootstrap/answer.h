// SPDX-License-Identifier: Apache-2.0
// The answer of a rank, or of the hub on its behalf, to a question that a rank asked all ranks.
#pragma once

#include <vector>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {

struct Answer {
  enum class State : uint8_t {
    kSilent,    ///< no answer within the asker's limit
    kAnswered,  ///< `bytes` is the rank's own answer
    kLeft,      ///< the rank has announced to leave, or has left
    kLost,      ///< the rank's process or host died
  };
  State state = State::kSilent;
  Bytes bytes = {};
  bool operator==(const Answer&) const = default;
};

/// The answers of all ranks, by rank, as one payload.
Bytes encode(const std::vector<Answer>& answers);
/// kInvalidArgument for bytes that encode() does not make.
Result<std::vector<Answer>> decode_answers(std::span<const std::byte> bytes);

}  // namespace tutti::bootstrap
