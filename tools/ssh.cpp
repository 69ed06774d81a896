// SPDX-License-Identifier: Apache-2.0
#include "tools/ssh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/fd.h"
#include "base/file.h"
#include "tools/commands.h"
#include "tools/launch.h"

namespace tutti::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kIdLine = "tutti-ssh-id ";  // before the id, in both directions
constexpr auto kIdTime = std::chrono::seconds(60);     // for rank 0 to send the id
constexpr int kSshFailed = 255;                        // exit code of ssh itself
constexpr int kMostSlots = 4096;
// Variables that say how a process of this host was started.
constexpr std::array<std::string_view, 6> kOfThisHost = {"TUTTI_ID",    "TUTTI_ID_", "TUTTI_RANK",
                                                         "TUTTI_RANKS", "TUTTI_SSH", "TUTTI_MEETING"};

Status bad_line(const std::string& file, int line, std::string_view why) {
  return {Code::kConfig, fmt::format("{}:{}: {}; write HOST or HOST slots=N", file, line, why)};
}

Result<int> slots_of(const std::string& text, const std::string& file, int line) {
  constexpr std::string_view kKey = "slots=";
  char* end = nullptr;
  const bool has_key = text.starts_with(kKey) && text.size() > kKey.size();
  const long slots = has_key ? std::strtol(text.c_str() + kKey.size(), &end, 10) : 0;
  if (has_key && *end == '\0' && slots >= 1 && slots <= kMostSlots) return static_cast<int>(slots);
  return bad_line(file, line, fmt::format("'{}' is not slots=N, with N of 1 to {}", text, kMostSlots));
}

/// Quoted for a shell.
std::string shell_word(std::string_view word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  return getcwd(path.data(), path.size()) == nullptr ? "." : std::string(path.data());
}

/// The command that the shell of a host runs.
std::string remote_command(const SshJob& job, int rank) {
  std::string command = fmt::format("cd {} 2>/dev/null; exec {}", shell_word(own_folder()), shell_word(own_program()));
  for (const std::string& argument : job.arguments) command += " " + shell_word(argument);
  return command + fmt::format(" {} {}", job.rank_option, rank);
}

std::vector<std::string> ssh_command(const SshJob& job, int rank) {
  std::vector<std::string> words = job.program;
  for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}) words.emplace_back(word);
  words.push_back(job.hosts[static_cast<size_t>(rank)]);
  words.push_back(remote_command(job, rank));
  return words;
}

bool is_forwarded(std::string_view variable) {
  if (!variable.starts_with("TUTTI_") || variable.find('\n') != std::string_view::npos) return false;
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::none_of(kOfThisHost.begin(), kOfThisHost.end(),
                      [&](std::string_view own) { return own.ends_with('_') ? name.starts_with(own) : name == own; });
}

/// All that a rank reads from its standard input. `id`: empty for rank 0.
std::string input_of(const std::string& id) {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (is_forwarded(*variable)) text += std::string(*variable) + '\n';
  }
  return text + std::string(kIdLine) + id + '\n';
}

struct Pipe {
  base::Fd reads, writes;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return base::system_error("cannot make a pipe to ssh");
  return Pipe{base::Fd(ends[0]), base::Fd(ends[1])};
}

/// A running ssh. The calling process ends it when the calling process ends.
class Ssh {
 public:
  /// `has_output`: its standard output comes through output(), instead of that of this process.
  static Result<Ssh> start(std::vector<std::string> words, bool has_output) {
    TUTTI_ASSIGN(Pipe input, make_pipe());
    TUTTI_ASSIGN(Pipe output, make_pipe());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return base::system_error("cannot start ssh");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      std::signal(SIGPIPE, SIG_DFL);
      if (getppid() != parent) std::_Exit(kFailure);
      dup2(input.reads.get(), STDIN_FILENO);
      if (has_output) dup2(output.writes.get(), STDOUT_FILENO);
      execvp(arguments[0], arguments.data());
      fmt::print(stderr, "tutti: cannot run '{}': {}\n", arguments[0], base::errno_text(errno));
      std::_Exit(kSshFailed);
    }
    return Ssh(pid, std::move(input.writes), std::move(output.reads));
  }

  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  /// Its exit code; 128 + the signal that ended it.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  Ssh(pid_t pid, base::Fd input, base::Fd output) : pid_(pid), input_(std::move(input)), output_(std::move(output)) {}
  pid_t pid_;
  base::Fd input_;  // open as long as the rank shall live
  base::Fd output_;
};

/// The next bytes of a pipe; empty: its other end is closed. Nothing: the deadline has passed.
std::optional<std::string> read_some(int descriptor, std::optional<Clock::time_point> deadline) {
  std::array<char, 4096> buffer;
  for (;;) {
    int left_ms = -1;
    if (deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      left_ms = static_cast<int>(std::max<int64_t>(left, 0));
    }
    pollfd one{descriptor, POLLIN, 0};
    const int ready = poll(&one, 1, left_ms);
    if (ready == 0) return std::nullopt;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t bytes = read(descriptor, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    return std::string(buffer.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  }
}

Status no_id(const SshJob& job, std::string_view why) {
  return {Code::kRemote, fmt::format("rank 0 on host '{}' sends no id: {}", job.hosts.front(), why)};
}

/// Tells the id that rank 0 sends, and passes on all further output of rank 0.
Status relay(const SshJob& job, const Ssh& ssh, const TellId& tell) {
  const auto deadline = Clock::now() + kIdTime;
  std::string text;
  while (text.find('\n') == std::string::npos) {
    const auto more = read_some(ssh.output(), deadline);
    if (!more) return no_id(job, fmt::format("nothing came within {} s", kIdTime.count()));
    if (more->empty()) return {};  // the exit code of ssh says why
    text += *more;
  }
  const size_t end = text.find('\n');
  if (!text.starts_with(kIdLine)) return no_id(job, fmt::format("its first line is '{}'", text.substr(0, end)));
  TUTTI_ASSIGN(const UniqueId id, UniqueId::from_string(std::string_view(text).substr(0, end).substr(kIdLine.size())));
  TUTTI_TRY(tell(id));
  text.erase(0, end + 1);
  do {
    TUTTI_TRY(base::write_all(STDOUT_FILENO, text, "to standard output"));
    text = read_some(ssh.output(), std::nullopt).value_or("");
  } while (!text.empty());
  return {};
}

/// The exit code of a rank, or why it did not run.
Result<int> end_of(const SshJob& job, int rank, int code) {
  if (code != kSshFailed) return code;
  const std::string& host = job.hosts[static_cast<size_t>(rank)];
  return Status(Code::kRemote, fmt::format("ssh to host '{0}' failed; its reason stands above. Does '{1} -o "
                                           "BatchMode=yes {0} true' work, and does the host have {2}?",
                                           host, fmt::join(job.program, " "), own_program()));
}

Result<int> run_first(const SshJob& job, const TellId& tell) {
  TUTTI_ASSIGN(Ssh ssh, Ssh::start(ssh_command(job, 0), true));
  // If ssh has ended, its exit code says why.
  static_cast<void>(base::write_all(ssh.input(), input_of(""), "to ssh"));
  TUTTI_TRY(relay(job, ssh, tell));
  return end_of(job, 0, ssh.wait());
}

Result<int> run_further(const SshJob& job, int rank, const UniqueId& id) {
  TUTTI_ASSIGN(Ssh ssh, Ssh::start(ssh_command(job, rank), false));
  // If ssh has ended, its exit code says why.
  static_cast<void>(base::write_all(ssh.input(), input_of(id.to_string()), "to ssh"));
  return end_of(job, rank, ssh.wait());
}

/// Ends the process when standard input ends.
void end_with_connection() {
  std::thread([] {
    while (true) {
      const auto bytes = read_some(STDIN_FILENO, std::nullopt);
      if (bytes->empty()) std::_Exit(kFailure);
    }
  }).detach();
}

}  // namespace

Result<std::vector<std::string>> read_hostfile(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Status(Code::kNotFound, fmt::format("{}: {}", file, base::errno_text(errno)));
  std::vector<std::string> hosts;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, slots, more;
    if (!(words >> host)) continue;
    if (host.starts_with('-') || host.find('=') != std::string::npos) {
      return bad_line(file, number, fmt::format("'{}' is no name of a host", host));
    }
    int count = 1;
    if (words >> slots) {
      TUTTI_ASSIGN(count, slots_of(slots, file, number));
    }
    if (words >> more) return bad_line(file, number, fmt::format("'{}' is one word too many", more));
    hosts.insert(hosts.end(), static_cast<size_t>(count), host);
  }
  if (hosts.empty()) return Status(Code::kConfig, fmt::format("{}: names no host; write a line for each host", file));
  return hosts;
}

int run_by_ssh(const SshJob& job) {
  std::signal(SIGPIPE, SIG_IGN);  // a rank may end before it has read its input
  return run_as_processes(
      static_cast<int>(job.hosts.size()), [&](const TellId& tell) { return run_first(job, tell); },
      [&](const UniqueId& id, int rank) { return run_further(job, rank, id); });
}

Result<UniqueId> join_by_ssh(const Session& session, int rank) {
  std::string line;
  while (std::getline(std::cin, line) && !line.starts_with(kIdLine)) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) break;
    setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 1);
  }
  if (!line.starts_with(kIdLine)) {
    return Status(Code::kFailedPrecondition, "standard input brings no id; start the ranks with --ssh HOSTFILE");
  }
  end_with_connection();
  if (rank > 0) return UniqueId::from_string(std::string_view(line).substr(kIdLine.size()));
  TUTTI_ASSIGN(const UniqueId id, session.make_id());
  fmt::print("{}{}\n", kIdLine, id.to_string());
  if (std::fflush(stdout) != 0) return base::system_error("cannot send the id to the other ranks");
  return id;
}

}  // namespace tutti::tools
