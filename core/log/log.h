// SPDX-License-Identifier: Apache-2.0
// The log: lines "time level rank/ranks text" on stderr or in a file. Levels are defined by volume: error and warn for
// lines that need an action, info once per communicator, debug per call shape, trace per call. Any thread.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <string_view>
#include <utility>

#include "tutti/status.h"

namespace tutti::log {

enum class Level : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4, kTrace = 5 };

/// "off", "error", "warn", "info", "debug", "trace".
std::string_view to_string(Level level);
/// The level with this name; an unknown name is kWarn.
Level level_from(std::string_view name);

/// For the whole process; before it, warnings go to stderr. `file`: empty for stderr, else appended to; %h becomes the
/// host's name, %p the process id. In a directory that other users may write, the file must be a plain file of this
/// user. kConfig if the file cannot be opened; then the log stays as it was. A line that cannot be written later goes
/// to stderr with the cause, as do all lines after it.
Status configure(Level level, std::string_view file);
/// The level of failures that a call also returns: kError, unless the program itself prints each failure it gets. For
/// the whole process.
void set_failure_level(Level level);
/// Whether a line is written; asked for lines of all levels, by one thread at a time. Must not log. `rank`: of the
/// calling thread; -1: of none.
using Filter = std::function<bool(Level level, int rank, std::string_view text)>;
/// For the whole process; null: every line.
void set_filter(Filter filter);
/// The rank for which the calling thread works, as its lines show it; size 0: none.
void set_rank(int rank, int size);

namespace detail {
// Relaxed: a late line more or less is no matter.
inline std::atomic<int> threshold{static_cast<int>(Level::kWarn)};
inline std::atomic<int> failure_level{static_cast<int>(Level::kError)};
}  // namespace detail

/// The cost of a line that is not wanted: one relaxed load.
inline bool enabled(Level level) {
  return static_cast<int>(level) <= detail::threshold.load(std::memory_order_relaxed);
}
/// Writes a finished text at any level; texts of plugins come this way. Line breaks become " | ", because a line is one
/// event. If several ranks of this process write the same warning, the first of them writes it, and the 10th, 100th,
/// ... time comes with its number. At the level kInfo and above, each rank writes it.
void write(Level level, std::string_view text);

template <class... Args>
void at(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kError, format, std::forward<Args>(args)...);
}
/// Whether failure() writes a line.
inline bool shows_failures() {
  return enabled(static_cast<Level>(detail::failure_level.load(std::memory_order_relaxed)));
}
/// A failure that a call also returns. Only the rank that detects it logs it so: ranks that are told use info().
template <class... Args>
void failure(fmt::format_string<Args...> format, Args&&... args) {
  at(static_cast<Level>(detail::failure_level.load(std::memory_order_relaxed)), format, std::forward<Args>(args)...);
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
template <class... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) {
  at(Level::kTrace, format, std::forward<Args>(args)...);
}

}  // namespace tutti::log
