// SPDX-License-Identifier: Apache-2.0
// Files that decide about this process: plugins and configuration files.
#pragma once

#include <filesystem>
#include <string_view>

#include "tutti/status.h"

namespace tutti::config {

/// kConfig if other users may change the file, or put a different file in its place, and this process is root's or runs
/// with more rights than its caller. Otherwise the log warns of the file, once in this process. `what`: "the plugin".
/// `trust`: the value of plugins.trust. A file that is not there, and a pipe without a name, pass.
///
/// The whole path is checked. If only trusted users may change it, the file is the same when it is opened later.
Status check_trust(const std::filesystem::path& file, std::string_view what, std::string_view trust);

}  // namespace tutti::config
