// SPDX-License-Identifier: Apache-2.0
// The log: lines "time level rank/ranks text" on stderr or in a file. Levels are defined by volume: error and warn for
// what someone should act on, info once per communicator, debug per call shape, trace per call. Any thread.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>

#include "tutti/status.h"

namespace tutti::log {

enum class Level : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4, kTrace = 5 };

/// Process-wide. `file`: empty for stderr; %h becomes the host's name, %p the process id.
Status configure(Level level, std::string_view file);
/// "off", "error", "warn", "info", "debug", "trace"; anything else is kWarn.
Level level_from(std::string_view name);

/// What stands for this thread in its lines; size 0: nothing.
void set_rank(int rank, int size);

namespace detail {
inline std::atomic<int> threshold{static_cast<int>(Level::kWarn)};
}

inline bool enabled(Level level) {
  return static_cast<int>(level) <= detail::threshold.load(std::memory_order_relaxed);
}
/// A finished line; what plugins' texts go through.
void write(Level level, std::string_view text);

template <class... Args>
void at(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kError, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace tutti::log
