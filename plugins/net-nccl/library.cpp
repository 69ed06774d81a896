// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

namespace tutti::net_nccl {
namespace {

constexpr const char* kSetting = "settings.net.nccl.file";

/// The loaded files of this process, by handle of the dynamic linker.
struct Loaded {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Library>> libraries;
};
Loaded& loaded() {
  static Loaded all;
  return all;
}

std::string symbol_of(int version) {
  return fmt::format("ncclNetPlugin_v{}", version);
}

std::string file_of(const std::string& named) {
  const bool is_file = named.find('/') != std::string::npos || (named.starts_with("lib") && named.ends_with(".so"));
  return is_file ? named : fmt::format("libnccl-net-{}.so", named);
}

/// The path that the dynamic linker has found.
std::string path_of(void* symbol, const std::string& file) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? std::string(info.dli_fname) : file;
}

Status no_file(const std::string& file, const char* reason) {
  return {Code::kNotFound,
          fmt::format("the NCCL network plugin {} does not load: {}; {} must be a path, or NAME for a file "
                      "libnccl-net-NAME.so in LD_LIBRARY_PATH",
                      file, reason == nullptr ? "no reason given" : reason, kSetting)};
}

Status no_table(void* handle, const std::string& file) {
  std::vector<std::string> wanted;
  for (int version = kNewestVersion; version >= kOldestVersion; --version) wanted.push_back(symbol_of(version));
  std::string found;
  for (int version = kOldestVersion - 1; version > 0 && found.empty(); --version) {
    if (dlsym(handle, symbol_of(version).c_str()) != nullptr) found = symbol_of(version);
  }
  return {Code::kVersionMismatch,
          fmt::format("{} has no table of a network plugin: looked for {}{}; get a build of the plugin for NCCL 2.13 "
                      "or newer, or name a different file in {}",
                      file, fmt::join(wanted, ", "),
                      found.empty() ? "" : fmt::format("; it has {}, which is too old", found), kSetting)};
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

}  // namespace

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

Result<std::shared_ptr<Library>> Library::load(const std::string& named) {
  const std::string file = file_of(named);
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return no_file(file, dlerror());
  if (const auto known = all.libraries.find(handle); known != all.libraries.end()) {
    dlclose(handle);  // opened a second time
    return known->second;
  }
  for (int version = kNewestVersion; version >= kOldestVersion; --version) {
    void* const table = dlsym(handle, symbol_of(version).c_str());
    if (table == nullptr) continue;
    auto library = std::make_shared<Library>(path_of(table, file), make_adapter(version, table));
    all.libraries.emplace(handle, library);
    return library;
  }
  Status failure = no_table(handle, file);
  dlclose(handle);
  return failure;
}

std::string Library::place() const {
  return fmt::format("'{}' ({}, {})", adapter_->name(), file_, symbol_of(adapter_->version()));
}

Status Library::begin(const Sink& sink, uint64_t communicator, void** context, std::vector<Device>& devices) {
  const LogScope log(sink);
  const std::lock_guard lock(mutex_);
  if (adapter_->has_contexts() || !is_initialised_) {
    if (const int code = adapter_->init(context, communicator, log_line); code != kNcclSuccess) {
      return failure("init", code);
    }
    is_initialised_ = true;
  }
  Status listed = list(devices);
  if (!listed.ok() && adapter_->has_contexts()) adapter_->finalize(std::exchange(*context, nullptr));
  return listed;
}

Status Library::list(std::vector<Device>& devices) {
  int count = 0;
  if (const int code = adapter_->devices(&count); code != kNcclSuccess) return failure("devices", code);
  if (count <= 0) {
    return {Code::kNotFound, fmt::format("NCCL network plugin {} finds no device on this machine; look at its log with "
                                         "log.level=debug, or choose a different network",
                                         place())};
  }
  for (int index = 0; index < count; ++index) {
    Device device;
    if (const int code = adapter_->describe(index, device); code != kNcclSuccess) {
      return failure(fmt::format("getProperties of device {}", index), code);
    }
    if (device.type != 0) {
      return {Code::kUnsupported,
              fmt::format("device {} ('{}') of NCCL network plugin {} must be driven by the GPU (netDeviceType {}), "
                          "which net-nccl does not do; configure the plugin for devices of the host",
                          index, device.name, place(), device.type)};
    }
    devices.push_back(std::move(device));
  }
  return {};
}

void Library::end(const Sink& sink, void* context) {
  if (!adapter_->has_contexts()) return;
  const LogScope log(sink);
  const std::lock_guard lock(mutex_);
  adapter_->finalize(context);
}

Status Library::failure(const std::string& doing, int nccl_code) const {
  const std::string warning = LogScope::last_warning();
  return {code_of(nccl_code), fmt::format("NCCL network plugin {}: {} fails with {}{}", place(), doing,
                                          name_of(nccl_code), warning.empty() ? "" : ": " + warning)};
}

Status Library::lost(const std::string& doing, int nccl_code) const {
  const Status status = failure(doing, nccl_code);
  const bool is_lost = nccl_code == kNcclSystemError || nccl_code == kNcclRemoteError || nccl_code == kNcclTimeout;
  return is_lost ? Status(Code::kRemote, std::string(status.text())) : status;
}

}  // namespace tutti::net_nccl
