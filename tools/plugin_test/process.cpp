// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <utility>

namespace tutti::tools::plugin_test {
namespace {

/// Runs a command to its end; ok if it succeeds.
Status run(const std::vector<std::string>& command) {
  TUTTI_ASSIGN(Process process, Process::start(command, {}, true));
  while (!process.has_ended()) {
    const timespec interval{0, 1'000'000};
    nanosleep(&interval, nullptr);
  }
  if (WIFEXITED(process.status()) && WEXITSTATUS(process.status()) == 0) return {};
  return {Code::kUnsupported, fmt::format("'{}' fails", fmt::join(command, " "))};
}

/// Waits until the kernel says that a link carries data, for 5 s at most. Networks may leave out links that are not up
/// yet when they start; UCX does.
Status wait_until_up(const std::string& space, const std::string& link) {
  const std::vector<std::string> ask = {"ip",   "netns", "exec", space,
                                        "grep", "-qx",   "up",   fmt::format("/sys/class/net/{}/operstate", link)};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!run(ask).ok()) {
    if (std::chrono::steady_clock::now() > end) {
      return {Code::kUnsupported, fmt::format("link {} of the network namespace {} does not come up", link, space)};
    }
  }
  return {};
}

}  // namespace

Result<Process> Process::start(const std::vector<std::string>& arguments, const std::vector<Inherited>& inherited,
                               bool is_quiet) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const Inherited& one : inherited) posix_spawn_file_actions_adddup2(&actions, one.fd, one.as);
  if (is_quiet) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  Process process;
  const int code = posix_spawnp(&process.pid_, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    process.pid_ = 0;
    return base::system_error(fmt::format("cannot start '{}'", arguments[0]), code);
  }
  return process;
}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
    status_ = other.status_;
  }
  return *this;
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return base::system_error("cannot make a pipe");
  return Pipe{base::Fd(ends[0]), base::Fd(ends[1])};
}

void read_available(const base::Fd& reader, std::string& text) {
  std::array<char, 65536> piece{};
  pollfd ready{reader.get(), POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) {
    const ssize_t size = read(reader.get(), piece.data(), piece.size());
    if (size <= 0) return;
    text.append(piece.data(), static_cast<size_t>(size));
  }
}

std::optional<std::string> take_line(std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

std::string how_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("by signal {}", strsignal(WTERMSIG(status)))
                             : fmt::format("with exit code {}", WEXITSTATUS(status));
}

bool Process::has_ended() {
  if (pid_ == 0) return true;
  if (waitpid(pid_, &status_, WNOHANG) == 0) return false;
  pid_ = 0;
  return true;
}

void Process::end() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, 0), &status_, 0);
}

Result<std::unique_ptr<Namespaces>> Namespaces::make() {
  if (geteuid() != 0) return Status(Code::kUnsupported, "network namespaces need root");
  std::unique_ptr<Namespaces> made(new Namespaces(fmt::format("tutti-test-{}", getpid())));
  const std::string first = made->name_ + "-0", second = made->name_ + "-1";
  const std::vector<std::vector<std::string>> commands = {
      {"ip", "netns", "add", first},
      {"ip", "netns", "add", second},
      {"ip", "link", "add", "tutti0", "netns", first, "type", "veth", "peer", "name", "tutti1", "netns", second},
      {"ip", "-n", first, "addr", "add", "10.213.0.1/24", "dev", "tutti0"},
      {"ip", "-n", second, "addr", "add", "10.213.0.2/24", "dev", "tutti1"},
      {"ip", "-n", first, "link", "set", "lo", "up"},
      {"ip", "-n", second, "link", "set", "lo", "up"},
      {"ip", "-n", first, "link", "set", "tutti0", "up"},
      {"ip", "-n", second, "link", "set", "tutti1", "up"}};
  for (const auto& command : commands) TUTTI_TRY(run(command));
  TUTTI_TRY(wait_until_up(first, "tutti0"));
  TUTTI_TRY(wait_until_up(second, "tutti1"));
  return made;
}

Namespaces::~Namespaces() {
  // A namespace that was not made cannot be deleted; nothing depends on it.
  for (const char* number : {"-0", "-1"}) {
    [[maybe_unused]] const Status deleted = run({"ip", "netns", "delete", name_ + number});
  }
}

std::vector<std::string> Namespaces::prefix(uint32_t role) const {
  return {"ip", "netns", "exec", fmt::format("{}-{}", name_, role)};
}

}  // namespace tutti::tools::plugin_test
