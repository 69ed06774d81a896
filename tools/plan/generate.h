// SPDX-License-Identifier: Apache-2.0
// Asking an algorithm plugin for its plans, without a communicator.
#pragma once

#include "config/config.h"
#include "program/file/file.h"

namespace tutti::tools {

struct PlanQuestion {
  Collective collective = Collective::kAllReduce;
  /// "ring"; "direct/two-shot"; "/path/of/plugin.so"; "/path/of/plugin.so/two-shot". Without a variant, the first
  /// suitable variant. A path that ends with ".so" names a plugin's file, with any folders.
  std::string algorithm = "ring";
  uint32_t rank_count = 4;
  uint32_t host_count = 1;  ///< ranks are dealt to hosts in blocks
  uint32_t root = 0;
  uint32_t channel = 0;
};

/// All ranks' plans of one channel, with their repeats. kUnsupported names the variants and their collectives.
Result<program::PlanFile> generate(const PlanQuestion& question, config::Config config);

}  // namespace tutti::tools
