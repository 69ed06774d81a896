// SPDX-License-Identifier: Apache-2.0
// The common part of bootstrap tests: groups of ranks in threads, ranks in processes of their own, raw connections.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/endpoint.h"

namespace tutti::bootstrap {

/// Far beyond the time of any step, also on a busy machine.
inline base::Time soon() {
  return base::time_in(std::chrono::seconds(60));
}

/// An id on the loopback.
UniqueId make_id();

/// Runs body(rank) in one thread for each rank.
void in_ranks(int count, const std::function<void(int rank)>& body);

using Group = std::vector<std::unique_ptr<Bootstrap>>;
/// All ranks of an id, joined.
Group make_group(const UniqueId& id, int count);
inline Group make_group(int count) {
  return make_group(make_id(), count);
}

/// The first failure that a bootstrap reports.
std::future<FailureReport> next_failure(Bootstrap& bootstrap);
/// It, waited for; kind 0 when none comes.
FailureReport wait_for(std::future<FailureReport>& failure);

/// The answers of all ranks to a question, by rank: the bytes as text, or "no answer", "left", "lost".
std::vector<std::string> texts_of(const Result<std::vector<Answer>>& answers);

/// The hello of a rank, without its proof.
Hello hello_to(const UniqueId& id, int rank, int rank_count);

/// A connection to the hub of an id that may say anything.
class Stranger {
 public:
  explicit Stranger(const UniqueId& id);
  explicit Stranger(base::Fd socket) : socket_(std::move(socket)) {}
  /// Answers the challenge with a right proof, and sends the hello.
  void join(const UniqueId& id, int rank, int rank_count) const { join(id, hello_to(id, rank, rank_count)); }
  /// The same with any hello; `timeout_ms`: the time that the rank says it has left.
  void join(const UniqueId& id, Hello hello, uint32_t timeout_ms = 60000) const;
  /// Lets a rank in, as a hub with this secret does.
  void admit(const Secret& secret) const;
  /// The next frame; an empty header if the connection ends.
  Frame hear() const;
  /// The next frame of this kind; frames of other kinds before it are dropped. An empty header if the connection ends.
  Frame hear(Kind kind) const;
  void say(std::span<const std::byte> bytes) const;
  void say(Header header, std::span<const std::byte> payload) const;
  /// Returns when the hub has closed the connection; false if it did not within a minute.
  bool hears_end() const;

 private:
  bool read(std::span<std::byte> bytes) const;
  base::Fd socket_;
};

/// This program started again to run one test, with a line of text in its environment.
class Child {
 public:
  /// `test`: "DISABLED_Child.Joins", which finds `argument` in the environment variable of its name.
  Child(const std::string& test, const std::string& argument);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The next text of the child's say_to_parent().
  std::string hear() const;
  /// Lets the child's wait_for_parent() return, now and later, here and in its own children.
  void release() { to_child_.reset(); }
  void kill();
  /// Returns once the process has stopped.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void resume() const { ::kill(pid_, SIGCONT); }
  int wait();

 private:
  pid_t pid_ = -1;
  base::Fd to_child_;
  base::Fd from_child_;
};

// In the child.
std::string child_argument();
void say_to_parent(const std::string& line);
void wait_for_parent();

}  // namespace tutti::bootstrap
