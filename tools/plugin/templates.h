// SPDX-License-Identifier: Apache-2.0
// The files of the examples from which `tutti plugin new` makes projects.
#pragma once

#include <span>
#include <string_view>

namespace tutti::tools {

struct Template {
  std::string_view kind;     ///< "net"
  std::string_view example;  ///< name of the plugin in the example: "unix_stream"
  std::string_view file;     ///< its name in the example; it may contain the name of the plugin
  std::string_view content;
};

/// All files of all kinds.
std::span<const Template> templates();

}  // namespace tutti::tools
