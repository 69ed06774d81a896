// SPDX-License-Identifier: Apache-2.0
#include "nccl_plugins/log.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace tutti::nccl_plugins {
namespace {

struct ThreadLog {
  const Sink* sink;
  std::array<char, 512> warning;
};
constinit thread_local ThreadLog log_of_thread{};

constinit std::mutex sinks_mutex;       // guards the list of sinks
constinit Sink* latest_sink = nullptr;  // null: none

int32_t level_of(int level) {
  switch (level) {
    case kNcclAbort:
      return TUTTI_LOG_ERROR;
    case kNcclWarn:
      return TUTTI_LOG_WARN;
    case kNcclVersionLine:
      return TUTTI_LOG_INFO;
    case kNcclTrace:
      return TUTTI_LOG_TRACE;
    default:
      return TUTTI_LOG_DEBUG;
  }
}

}  // namespace

Sink::Sink(sdk::Host host) : host_(host) {
  const std::lock_guard lock(sinks_mutex);
  previous_ = std::exchange(latest_sink, this);
}

Sink::~Sink() {
  const std::lock_guard lock(sinks_mutex);
  for (Sink** link = &latest_sink; *link != nullptr; link = &(*link)->previous_) {
    if (*link != this) continue;
    *link = previous_;
    return;
  }
}

void Sink::write(int level, const char* text) const {
  host_.log(level_of(level), std::string("NCCL plugin: ") + text);
}

LogScope::LogScope(const Sink& sink) : before_(std::exchange(log_of_thread.sink, &sink)) {
  if (before_ == nullptr) log_of_thread.warning[0] = '\0';
}

LogScope::~LogScope() {
  log_of_thread.sink = before_;
}

std::string LogScope::last_warning() {
  return log_of_thread.warning.data();
}

void log_line(int level, unsigned long /*subsystems*/, const char* /*place*/, int /*line*/, const char* format, ...) {
  std::array<char, sizeof log_of_thread.warning> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  ThreadLog& here = log_of_thread;
  if (here.sink != nullptr) {
    if (level == kNcclWarn || level == kNcclAbort) here.warning = text;
    return here.sink->write(level, text.data());
  }
  const std::lock_guard lock(sinks_mutex);
  if (latest_sink != nullptr) latest_sink->write(level, text.data());
}

}  // namespace tutti::nccl_plugins
