// SPDX-License-Identifier: Apache-2.0
// Reads ncclConfig_t: the wishes of an application for one communicator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nccl/environment.h"
#include "nccl/nccl.h"

namespace tutti::nccl {

struct Wishes {
  bool blocking = true;
  std::optional<int> max_ctas;
  std::string network;               ///< empty: any
  std::vector<std::string> ignored;  ///< "minCTAs = 4": valid, and without effect
};

/// Null: the defaults, with `blocking` as given. ncclInvalidArgument for values that are none.
ncclResult_t read(const ncclConfig_t* config, bool blocking, Wishes& wishes);
/// Names the ignored members in the log. Call it after the log is set up.
void name_ignored(const Wishes& wishes);
/// Puts the wishes into settings that no other origin has decided.
void propose(const Wishes& wishes, Settings& settings);

}  // namespace tutti::nccl
