// SPDX-License-Identifier: Apache-2.0
// Running cases, with ranks as threads of this process.
#pragma once

#include <span>

#include "integration/matrix/cases.h"
#include "integration/matrix/team.h"

namespace tutti::matrix {

struct Tally {
  size_t passed = 0;
  size_t failed = 0;
  size_t not_offered = 0;  ///< the algorithm or protocol that the setting forces cannot do the call
  Tally& operator+=(const Tally& other);
};

/// Runs cases that all have the same number of ranks. Failures are told on stderr as they occur.
Result<Tally> run_cases(std::span<const Case> cases);

}  // namespace tutti::matrix
