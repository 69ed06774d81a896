// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/opening.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

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
#include "tools/plugin_test/shared_memory.h"
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
  SharedMemory<SharedTrialState> shared_state_;
  base::Fd results_;
  Process process_;
  std::string unread_;
  Opening opening_;
  bool has_result_ = false;
};

Status Opener::start() {
  TUTTI_ASSIGN(shared_state_, SharedMemory<SharedTrialState>::make());
  TUTTI_ASSIGN(Pipe reports, make_pipe());
  results_ = std::move(reports.reader);
  std::vector<std::string> words = {own_program(), "plugin", "test",
                                    request_.file, "--side", std::string(kOpeningSide)};
  append_configuration(request_, words);
  constexpr bool kQuiet = false;  // the log of `open`, and the text about a static initialiser that throws
  TUTTI_ASSIGN(
      process_,
      Process::start(words, {{reports.writer.get(), kResultsFd}, {shared_state_.fd(), kSharedStateFd}}, kQuiet));
  return {};
}

void Opener::read_results() {
  read_available(results_, unread_);
  while (const auto line = take_line(unread_)) take(nlohmann::json::parse(*line));
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
  TUTTI_ASSIGN(const auto shared_state, SharedMemory<SharedTrialState>::at(kSharedStateFd));
  const auto enter = [&](std::string_view step) { shared_state->enter(step); };
  auto config = configuration(request);
  if (!config.ok()) return report_failure("load", config.status()).ok() ? 0 : 1;
  const auto file = find_plugin(request, *config);
  if (!file.ok()) return report_failure("load", file.status()).ok() ? 0 : 1;
  TUTTI_TRY(report({{"step", "note"},
                    {"file", file->path.string()},
                    {"kind", static_cast<uint32_t>(file->note.kind)},
                    {"name", file->note.name},
                    {"version", file->note.version}}));
  auto image = load_image(*file, *config, enter);
  if (!image.ok()) {
    TUTTI_TRY(report_failure("load", image.status()));
  } else {
    auto plugin = open_image(request, *std::move(image), *config, enter);
    TUTTI_TRY(report_failure("open", plugin.ok() ? Status() : plugin.status()));
    enter("entry 'close'");
    if (plugin.ok()) plugin->reset();
  }
  enter(kEnd);
  return 0;
}

}  // namespace tutti::tools::plugin_test
