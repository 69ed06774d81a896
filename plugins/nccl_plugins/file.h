// SPDX-License-Identifier: Apache-2.0
// Files with plugins of NCCL: how they are found, their tables, and the names of their results.
#pragma once

#include <string>

#include "tutti/status.h"

namespace tutti::nccl_plugins {

/// A kind of plugins of NCCL. A plugin exports one table of functions per version of the interface, as the data symbol
/// <symbol><version>.
struct PluginKind {
  const char* word;     ///< "network", in texts
  const char* type;     ///< "net": NAME stands for libnccl-net-NAME.so
  const char* symbol;   ///< "ncclNetPlugin_v"
  const char* setting;  ///< the setting that names the file, in texts
  int newest;
  int oldest;
  const char* since;  ///< the release of NCCL that brought `oldest`
};

/// A loaded file. The handle is of dlopen, and counts.
struct PluginFile {
  void* handle;
  void* table;  ///< of the newest version that both sides know
  int version;
  std::string path;
};

/// Loads a file. `named`: a path, a file name "lib....so", or NAME. Fails with kNotFound if it does not load, and with
/// kVersionMismatch if it has no table.
Result<PluginFile> open_file(const PluginKind& kind, const std::string& named);

/// "ncclRemoteError".
std::string name_of(int nccl_code);
Code code_of(int nccl_code);

}  // namespace tutti::nccl_plugins
