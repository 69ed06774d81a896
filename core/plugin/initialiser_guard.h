// SPDX-License-Identifier: Apache-2.0
// Static initialisers of a plugin run while it is loaded. An exception that leaves one cannot be caught: the process
// ends. An initialiser that calls exit() ends the process, too, with any code. The guard names the plugin in both
// cases.
#pragma once

#include <exception>
#include <mutex>
#include <string>

namespace tutti::plugin {

/// While it lives, the calling thread loads `file`. If this thread calls std::terminate() or exit() meanwhile, stderr
/// tells of the file, and the process ends with SIGABRT, or with code 1. Other threads are not concerned, and the
/// application's terminate handler is back afterwards. _exit() and signals go unnoticed.
class InitialiserGuard {
 public:
  explicit InitialiserGuard(std::string file);
  ~InitialiserGuard();
  InitialiserGuard(const InitialiserGuard&) = delete;
  InitialiserGuard& operator=(const InitialiserGuard&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;  // held by the outermost guard of a thread: the process has one terminate handler
  std::string file_;
  const char* outer_;  // a plugin that is loaded by an initialiser of this one
};

}  // namespace tutti::plugin
