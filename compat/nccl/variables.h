// SPDX-License-Identifier: Apache-2.0
// Variables named NCCL_*: of the process, else of the user's file, else of the system's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::nccl {

/// nullopt if the variable is not set, or is empty. Any thread.
std::optional<std::string> variable(std::string_view name);
/// All that are set, sorted.
std::vector<std::string> variables();

}  // namespace tutti::nccl
