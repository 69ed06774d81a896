// SPDX-License-Identifier: Apache-2.0
// The setting `fault` of the mock algorithm, protocol and tuner, and faults that all three commit.
#pragma once

#include <time.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/sdk/plugin.h"

namespace tutti::mock {

inline std::vector<tutti_config_key> fault_setting() {
  return {sdk::setting(TUTTI_CONFIG_TEXT, "fault", "none", "The fault that the mock commits.")};
}

[[noreturn]] inline void never_return() {
  for (;;) {
    const timespec second{1, 0};
    nanosleep(&second, nullptr);
  }
}

/// Blocks, ends the process or throws, if the fault says so.
inline void misbehave(const std::string& fault) {
  if (fault == "blocks") never_return();
  if (fault == "crashes") std::abort();
  if (fault == "throws") throw std::runtime_error("no way out");
}

}  // namespace tutti::mock
