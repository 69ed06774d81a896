// SPDX-License-Identifier: Apache-2.0
// ncclConfig_t, read: what an application wishes for one communicator.
#pragma once

#include <optional>
#include <string>

#include "nccl/environment.h"
#include "nccl/nccl.h"

namespace tutti::nccl {

struct Wishes {
  bool blocking = true;
  std::optional<int> max_ctas;
  std::string network;  ///< empty: any
};

/// Null: the defaults, with `blocking` as given. ncclInvalidArgument for values that are none.
ncclResult_t read(const ncclConfig_t* config, bool blocking, Wishes& wishes);
/// Into settings, where nobody has decided.
void propose(const Wishes& wishes, Settings& settings);

}  // namespace tutti::nccl
