// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/opening.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/file.h"
#include "tools/launch.h"
#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/process.h"
#include "tools/plugin_test/trial.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr double kStepLimit = 10;  // seconds, as of entries that are neither [progress] nor connect nor accept
constexpr const char* kEnd = "static destructors";

/// Writes one line of the process.
Status report(const nlohmann::json& line) {
  const std::string out = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  return base::write_all(kResultsFd, out, "the results");
}

Status report_failure(const char* step, const Status& failure) {
  return report({{"step", step}, {"code", static_cast<int>(failure.code())}, {"text", failure.text()}});
}

Status status_of(const nlohmann::json& line) {
  const auto code = static_cast<Code>(line["code"].get<int>());
  return code == Code::kOk ? Status() : Status(code, line["text"].get<std::string>());
}

/// The process, as the kit's own process sees it.
class Opener {
 public:
  explicit Opener(const Request& request) : request_(request) {}
  ~Opener() {
    if (shared_state_ != nullptr) munmap(shared_state_, sizeof(SharedTrialState));
  }
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;
  Result<Opening> run();

 private:
  Status start();
  void read_results();
  void take(const nlohmann::json& line);
  /// The time in the present step; 0: no code of the plugin runs.
  double seconds_in_step() const;
  /// "(NET-1)": the rule that the step breaks. `numbered`: names the rule for the entries of a kind.
  std::string broken_rule(std::string (*numbered)(plugin::Kind kind)) const;
  Status hang() const;
  Status crash() const;
  std::string_view step() const { return shared_state_->entry.data(); }
  std::string file() const { return opening_.file ? opening_.file->path.string() : request_.file; }

  const Request& request_;
  SharedTrialState* shared_state_ = nullptr;
  base::Fd results_;
  Process process_;
  std::string unread_;
  Opening opening_;
  bool has_result_ = false;
};

Status Opener::start() {
  const base::Fd shared_state(memfd_create("tutti-plugin-test", MFD_CLOEXEC));
  if (!shared_state.valid() || ftruncate(shared_state.get(), sizeof(SharedTrialState)) != 0) {
    return base::system_error("cannot make the shared state");
  }
  void* const memory =
      mmap(nullptr, sizeof(SharedTrialState), PROT_READ | PROT_WRITE, MAP_SHARED, shared_state.get(), 0);
  if (memory == MAP_FAILED) return base::system_error("cannot map the shared state");
  shared_state_ = static_cast<SharedTrialState*>(memory);
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return base::system_error("cannot make a pipe");
  results_ = base::Fd(pipes[0]);
  const base::Fd reports(pipes[1]);
  std::vector<std::string> words = {own_program(), "plugin", "test",
                                    request_.file, "--side", std::string(kOpeningSide)};
  if (!request_.config_file.empty()) words.insert(words.end(), {"--config", request_.config_file});
  for (const std::string& setting : request_.settings) words.insert(words.end(), {"--set", setting});
  constexpr bool kQuiet = false;  // the log of `open`, and the text about a static initialiser that throws
  TUTTI_ASSIGN(process_,
               Process::start(words, {{reports.get(), kResultsFd}, {shared_state.get(), kSharedStateFd}}, kQuiet));
  return {};
}

void Opener::read_results() {
  std::array<char, 4096> piece{};
  pollfd ready{results_.get(), POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) {
    const ssize_t size = read(results_.get(), piece.data(), piece.size());
    if (size <= 0) break;
    unread_.append(piece.data(), static_cast<size_t>(size));
  }
  for (size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    take(nlohmann::json::parse(unread_.substr(0, end)));
    unread_.erase(0, end + 1);
  }
}

void Opener::take(const nlohmann::json& line) {
  const std::string about = line["step"];
  if (about == "note") {
    PluginFile file{line["file"].get<std::string>(), {}};
    file.note.kind = static_cast<plugin::Kind>(line["kind"].get<uint32_t>());
    file.note.name = line["name"];
    file.note.version = line["version"];
    opening_.file = std::move(file);
    return;
  }
  has_result_ = true;
  (about == "load" ? opening_.loaded : opening_.opened) = status_of(line);
}

double Opener::seconds_in_step() const {
  const int64_t since_ns = shared_state_->since_ns.load(std::memory_order_acquire);
  return since_ns == 0 ? 0 : static_cast<double>(now_ns() - since_ns) * 1e-9;
}

std::string Opener::broken_rule(std::string (*numbered)(plugin::Kind kind)) const {
  if (step() == kEnd) return "";
  if (step() != "entry 'open'" && step() != "entry 'close'") return " (PLG-3)";
  return opening_.file ? fmt::format(" ({})", numbered(opening_.file->note.kind)) : "";
}

Status Opener::hang() const {
  return {Code::kTimeout,
          fmt::format("plugin {} hangs in its {}: no return for {:.0f} s{}; give each wait there a deadline", file(),
                      step(), seconds_in_step(), broken_rule(returns_rule))};
}

Status Opener::crash() const {
  const std::string how = how_ended(process_.status());
  if (seconds_in_step() == 0) {
    return {Code::kInternal, fmt::format("the process that opens plugin {} ended {}, without a result", file(), how)};
  }
  return {Code::kInternal,
          fmt::format("plugin {} ends the process in its {}: it ended {}{}; return a failure instead (ulimit -c "
                      "unlimited makes a core file, in which gdb finds the place)",
                      file(), step(), how, broken_rule(crashes_rule))};
}

Result<Opening> Opener::run() {
  TUTTI_TRY(start());
  for (;;) {
    pollfd ready{results_.get(), POLLIN, 0};
    poll(&ready, 1, 5);
    read_results();
    if (process_.has_ended()) break;
    if (seconds_in_step() < kStepLimit) continue;
    opening_.opened = hang();
    return opening_;
  }
  read_results();
  const int status = process_.status();
  const bool is_whole = has_result_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!is_whole) opening_.opened = crash();
  return opening_;
}

}  // namespace

Result<Opening> try_opening(const Request& request) {
  return Opener(request).run();
}

Result<int> run_opening(const Request& request) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* const memory = mmap(nullptr, sizeof(SharedTrialState), PROT_READ | PROT_WRITE, MAP_SHARED, kSharedStateFd, 0);
  if (memory == MAP_FAILED) return base::system_error("cannot map the shared state of the kit");
  auto& shared_state = *static_cast<SharedTrialState*>(memory);
  const auto enter = [&](std::string_view step) {
    shared_state.entry = {};
    std::copy_n(step.begin(), std::min(step.size(), shared_state.entry.size() - 1), shared_state.entry.begin());
    shared_state.since_ns.store(now_ns(), std::memory_order_release);
  };
  const auto file = find_plugin(request);
  if (!file.ok()) return report_failure("load", file.status()).ok() ? 0 : 1;
  TUTTI_TRY(report({{"step", "note"},
                    {"file", file->path.string()},
                    {"kind", static_cast<uint32_t>(file->note.kind)},
                    {"name", file->note.name},
                    {"version", file->note.version}}));
  auto image = load_image(request, *file, enter);
  if (!image.ok()) {
    TUTTI_TRY(report_failure("load", image.status()));
  } else {
    auto plugin = open_image(request, *std::move(image), enter);
    TUTTI_TRY(report_failure("open", plugin.ok() ? Status() : plugin.status()));
    enter("entry 'close'");
    if (plugin.ok()) plugin->reset();
  }
  enter(kEnd);
  return 0;
}

}  // namespace tutti::tools::plugin_test
