// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/journal.h"

#include <atomic>
#include <cstdio>
#include <string_view>

#include "log/log.h"

namespace tutti::nccl_net {
namespace {

constexpr unsigned long kInitAndNet = 0x1 | 0x10;  // subsystems of NCCL's log

std::atomic<Logger*> logger_of_nccl{nullptr};

void write(int level, const char* text) {
  if (Logger* const logger = logger_of_nccl.load(std::memory_order_acquire); logger != nullptr) {
    logger(level, kInitAndNet, "libnccl-net-tutti", 0, "NET/Tutti : %s", text);
  } else {
    std::fprintf(stderr, "NET/Tutti : %s\n", text);
  }
}

int level_of(log::Level level) {
  if (level <= log::Level::kWarn) return nccl_plugins::kNcclWarn;
  return level == log::Level::kInfo ? nccl_plugins::kNcclInfo : nccl_plugins::kNcclTrace;
}

/// False: the line needs no other place.
bool forward(log::Level level, int /*rank*/, std::string_view text) {
  if (logger_of_nccl.load(std::memory_order_acquire) == nullptr) return true;
  write(level_of(level), std::string(text).c_str());
  return false;
}

}  // namespace

void set_logger(Logger* logger) {
  logger_of_nccl.store(logger, std::memory_order_release);
}

void take_over_log() {
  log::set_filter(forward);
}

void warn(const std::string& text) {
  write(nccl_plugins::kNcclWarn, text.c_str());
}

void info(const std::string& text) {
  if (logger_of_nccl.load(std::memory_order_acquire) != nullptr) write(nccl_plugins::kNcclInfo, text.c_str());
}

void warn_of_exception(const char* entry, const char* what) noexcept {
  if (Logger* const logger = logger_of_nccl.load(std::memory_order_acquire); logger != nullptr) {
    logger(nccl_plugins::kNcclWarn, kInitAndNet, "libnccl-net-tutti", 0, "NET/Tutti : %s: %s", entry, what);
  }
}

int result_of(Code code) {
  switch (code) {
    case Code::kOk:
      return nccl_plugins::kNcclSuccess;
    case Code::kRemote:
    case Code::kTimeout:
      return nccl_plugins::kNcclRemoteError;
    case Code::kSystem:
    case Code::kNotFound:
      return nccl_plugins::kNcclSystemError;
    case Code::kDevice:
      return nccl_plugins::kNcclCudaError;
    case Code::kInvalidArgument:
      return nccl_plugins::kNcclInvalidArgument;
    default:
      return nccl_plugins::kNcclInternalError;
  }
}

}  // namespace tutti::nccl_net
