// SPDX-License-Identifier: Apache-2.0
// Where plugins are looked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plugin/kind.h"
#include "tutti/status.h"

namespace tutti::plugin {

/// A plugin as the configuration names it: by its name, by its absolute path, or, a network or a tuner only, as
/// NAME:FILE. The last form is the plugin NAME, which itself reads FILE: the value of its setting `file`.
struct Reference {
  std::string plugin;  ///< a name or an absolute path
  std::string file;    ///< empty: none
};
Reference reference_of(Kind kind, const std::string& named);

/// In this order, the first file that exists counts: the directories of the configuration, TUTTI_PLUGIN_PATH (colons
/// between; ignored by privileged programs), tutti/plugins beside the image this code is in, the directory Tutti was
/// installed to. Absolute, each once.
std::vector<std::filesystem::path> search_path(const std::vector<std::string>& configured);

/// The file of a plugin that the configuration names: an absolute path as it is, else the first match on the path.
/// kNotFound lists every directory and names the nearest plugin that is there.
Result<std::filesystem::path> find(Kind kind, const std::string& named,
                                   const std::vector<std::filesystem::path>& directories);

/// "; /opt/libmine.so has a different name": a shared object in the directories whose name contains the name of a
/// plugin that was not found. Plugins of this kind do not count. Empty: there is none.
std::string misnamed_file(Kind kind, const std::string& name, const std::vector<std::filesystem::path>& directories);

/// The names of the plugins of a kind that have a file on the path, sorted, each once.
std::vector<std::string> names_on(const std::vector<std::filesystem::path>& directories, Kind kind);

/// The name of a plugin that the configuration names: "ib" for "/opt/tutti-net-ib.so", "nccl" for "nccl:/opt/x.so".
std::string name_of(Kind kind, const std::string& named);

/// The same, but the whole text of NAME:FILE: rules, logs and errors call the plugin so.
std::string label_of(Kind kind, const std::string& named);

/// Every file on the path whose name is that of a plugin, in the order of the path.
std::vector<std::filesystem::path> all_files(const std::vector<std::filesystem::path>& directories);

}  // namespace tutti::plugin
