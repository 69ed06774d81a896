// SPDX-License-Identifier: Apache-2.0
// The log of NCCL's plugins. Their logger has no context, so each thread notes for which plugin it calls.
#pragma once

#include <string>

#include "nccl_plugins/network_tables.h"
#include "tutti/sdk/plugin.h"

namespace tutti::nccl_plugins {

/// The log of an open plugin of Tutti. A line that comes from a thread of NCCL's plugin goes to the sink that was made
/// last: no argument of the logger tells whose line it is.
class Sink {
 public:
  explicit Sink(sdk::Host host);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void write(int level, const char* text) const;

 private:
  friend void log_line(int level, unsigned long subsystems, const char* place, int line, const char* format, ...);

  sdk::Host host_;
  Sink* previous_ = nullptr;  // in the list of all sinks
};

/// The thread calls NCCL's plugin for `sink`, as long as this object lives.
class LogScope {
 public:
  explicit LogScope(const Sink& sink);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  /// The latest warning of this thread since the outermost object began; empty: there was none.
  static std::string last_warning();

 private:
  const Sink* before_;
};

/// The logger that plugins get.
__attribute__((format(printf, 5, 6))) void log_line(int level, unsigned long subsystems, const char* place, int line,
                                                    const char* format, ...);

}  // namespace tutti::nccl_plugins
