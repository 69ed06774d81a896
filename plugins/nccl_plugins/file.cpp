// SPDX-License-Identifier: Apache-2.0
#include "nccl_plugins/file.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "nccl_plugins/network_tables.h"

namespace tutti::nccl_plugins {
namespace {

std::string symbol_of(const PluginKind& kind, int version) {
  return fmt::format("{}{}", kind.symbol, version);
}

std::string file_of(const PluginKind& kind, const std::string& named) {
  const bool is_file = named.find('/') != std::string::npos || (named.starts_with("lib") && named.ends_with(".so"));
  return is_file ? named : fmt::format("libnccl-{}-{}.so", kind.type, named);
}

/// The path that the dynamic linker has found.
std::string path_of(void* symbol, const std::string& file) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? std::string(info.dli_fname) : file;
}

Status no_file(const PluginKind& kind, const std::string& file, const char* reason) {
  return {Code::kNotFound,
          fmt::format("the NCCL {} plugin {} does not load: {}; {} must be a path, or NAME for a file "
                      "libnccl-{}-NAME.so in LD_LIBRARY_PATH",
                      kind.word, file, reason == nullptr ? "no reason given" : reason, kind.setting, kind.type)};
}

Status no_table(const PluginKind& kind, void* handle, const std::string& file) {
  std::vector<std::string> wanted;
  for (int version = kind.newest; version >= kind.oldest; --version) wanted.push_back(symbol_of(kind, version));
  std::string found;
  for (int version = kind.oldest - 1; version > 0 && found.empty(); --version) {
    if (dlsym(handle, symbol_of(kind, version).c_str()) != nullptr) found = symbol_of(kind, version);
  }
  return {
      Code::kVersionMismatch,
      fmt::format("{} has no table of a {} plugin: looked for {}{}; get a build of the plugin for NCCL {} or "
                  "newer, or name a different file in {}",
                  file, kind.word, fmt::join(wanted, ", "),
                  found.empty() ? "" : fmt::format("; it has {}, which is too old", found), kind.since, kind.setting)};
}

}  // namespace

Result<PluginFile> open_file(const PluginKind& kind, const std::string& named) {
  const std::string file = file_of(kind, named);
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return no_file(kind, file, dlerror());
  for (int version = kind.newest; version >= kind.oldest; --version) {
    void* const table = dlsym(handle, symbol_of(kind, version).c_str());
    if (table != nullptr) return PluginFile{handle, table, version, path_of(table, file)};
  }
  Status failure = no_table(kind, handle, file);
  dlclose(handle);
  return failure;
}

std::string name_of(int nccl_code) {
  switch (nccl_code) {
    case kNcclCudaError:
      return "ncclUnhandledCudaError";
    case kNcclSystemError:
      return "ncclSystemError";
    case kNcclInternalError:
      return "ncclInternalError";
    case kNcclInvalidArgument:
      return "ncclInvalidArgument";
    case kNcclInvalidUsage:
      return "ncclInvalidUsage";
    case kNcclRemoteError:
      return "ncclRemoteError";
    case kNcclInProgress:
      return "ncclInProgress";
    case kNcclTimeout:
      return "ncclTimeout";
    default:
      return fmt::format("code {}", nccl_code);
  }
}

Code code_of(int nccl_code) {
  switch (nccl_code) {
    case kNcclCudaError:
      return Code::kDevice;
    case kNcclSystemError:
      return Code::kSystem;
    case kNcclInvalidArgument:
      return Code::kInvalidArgument;
    case kNcclInvalidUsage:
      return Code::kFailedPrecondition;
    case kNcclRemoteError:
      return Code::kRemote;
    case kNcclTimeout:
      return Code::kTimeout;
    default:
      return Code::kInternal;
  }
}

}  // namespace tutti::nccl_plugins
