// SPDX-License-Identifier: Apache-2.0
// Processes of the kit: their start, their end, and the namespaces in which they run.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// A descriptor that a new process gets under a fixed number.
struct Inherited {
  int fd;
  int as;
};

/// A started process. The destructor kills it and waits for its end.
class Process {
 public:
  Process() = default;
  /// `is_quiet`: its output is thrown away.
  static Result<Process> start(const std::vector<std::string>& arguments, const std::vector<Inherited>& inherited,
                               bool is_quiet);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)), status_(other.status_) {}
  Process& operator=(Process&& other) noexcept;
  ~Process() { end(); }

  /// Whether it has ended by itself; then status() is the value of waitpid.
  bool has_ended();
  int status() const { return status_; }
  void end();

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

/// A pipe for the reports of started processes.
struct Pipe {
  base::Fd reader, writer;
};
Result<Pipe> make_pipe();

/// Appends what has come through a pipe, without waiting.
void read_available(const base::Fd& reader, std::string& text);

/// Removes the first line of `text` and returns it without its end. Nothing: no line is whole.
std::optional<std::string> take_line(std::string& text);

/// "by signal Killed" or "with exit code 3". `status`: of waitpid.
std::string how_ended(int status);

/// Two network namespaces that a pair of virtual interfaces joins. The destructor removes them.
class Namespaces {
 public:
  /// kUnsupported: not root, or the command `ip` is missing.
  static Result<std::unique_ptr<Namespaces>> make();
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
  /// The words in front of a command that shall run in a namespace.
  std::vector<std::string> prefix(uint32_t role) const;

 private:
  explicit Namespaces(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

}  // namespace tutti::tools::plugin_test
