// SPDX-License-Identifier: Apache-2.0
// A process that the kit starts: it runs one side of a rule, or both sides in two threads.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "plugin/search.h"
#include "tools/plugin_test/opening.h"
#include "tools/plugin_test/request.h"
#include "tools/plugin_test/shared_memory.h"
#include "tools/plugin_test/side.h"
#include "tools/plugin_test/trial.h"
#include "tools/session.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kLarge = uint64_t{64} << 20;
constexpr uint64_t kLongLarge = uint64_t{1} << 30;
constexpr const char* kPeerLoss = "1s";  // a dead peer is noticed before the deadline of a rule

/// The file of the network with this name; if there is none, the file of a plugin of a different kind. TUTTI-P01: there
/// is no such file of any kind.
Result<std::filesystem::path> find_file(const std::string& name, const std::vector<std::filesystem::path>& folders) {
  auto found = plugin::find(plugin::Kind::kNetwork, name, folders);
  for (const plugin::Kind kind : plugin::kKinds) {
    if (found.ok()) break;
    if (auto other = plugin::find(kind, name, folders); other.ok()) found = std::move(other);
  }
  if (found.ok() || found.status().code() != Code::kNotFound) return found;
  std::vector<std::string> files;
  for (const plugin::Kind kind : plugin::kKinds) files.push_back(plugin::file_name(kind, name));
  std::vector<std::string> searched;
  for (const auto& folder : folders) searched.push_back(folder.string());
  return Status(Code::kNotFound,
                fmt::format("TUTTI-P01 plugin '{}' not found: no {} in {}; give its file, or its folder "
                            "in plugins.path",
                            name, fmt::join(files, ", "), fmt::join(searched, ", ")));
}

/// Opens the plugin once per side, as communicators do, and runs the rule.
Status run_role(const Request& request, uint32_t role, int line, SharedState& shared_state) {
  Side::Options options;
  options.rule = find_rule(request.rules.front());
  options.role = role;
  options.where = static_cast<Where>(request.side_where);
  options.seed = request.seed;
  options.device = request.device;
  options.large_bytes = request.is_long ? kLongLarge : kLarge;
  options.line = line;
  options.results = kResultsFd;
  options.watched = &shared_state.sides[role];
  TUTTI_ASSIGN(options.plugin, open_plugin(request));
  Side side(std::move(options));
  side.options().rule->run(side);
  return {};
}

}  // namespace

Result<config::Config> configuration(const Request& request) {
  auto settings = split_settings(request.settings);
  settings.insert(settings.begin(), {"timeouts.peer_loss", kPeerLoss});
  return load_config(request.config_file, settings);
}

void append_configuration(const Request& request, std::vector<std::string>& words) {
  if (!request.config_file.empty()) words.insert(words.end(), {"--config", request.config_file});
  for (const std::string& setting : request.settings) words.insert(words.end(), {"--set", setting});
}

Result<PluginFile> find_plugin(const Request& request, const config::Config& config) {
  const std::string named = plugin::reference_of(plugin::Kind::kNetwork, request.file).plugin;
  std::filesystem::path file = named;
  if (named.find('/') == std::string::npos && !named.ends_with(".so")) {
    auto found = find_file(named, plugin::search_path(config.list("plugins.path")));
    // A file of this folder has the name: the failure of read_note() states why it is no plugin.
    if (!found.ok() && !std::filesystem::is_regular_file(named)) return found.status();
    if (found.ok()) file = *std::move(found);
  }
  auto note = plugin::read_note(file);
  if (!note.ok()) {
    return Status(note.status().code(),
                  fmt::format("{} {}; name the file of a plugin", file.string(), note.status().text()));
  }
  return PluginFile{std::filesystem::absolute(file), *std::move(note)};
}

Result<std::shared_ptr<plugin::Image>> load_image(const PluginFile& file, const config::Config& config,
                                                  const BeforeStep& before) {
  return plugin::Image::load(file.note.kind, file.note.name, file.path, config.text("plugins.trust"), before);
}

Result<std::shared_ptr<plugin::Plugin>> open_image(const Request& request, std::shared_ptr<plugin::Image> image,
                                                   config::Config& config, const BeforeStep& before) {
  if (before) before("entry 'open'");
  return plugin::Plugin::open(std::move(image), config,
                              plugin::reference_of(plugin::Kind::kNetwork, request.file).file);
}

Result<std::shared_ptr<plugin::Plugin>> open_plugin(const Request& request) {
  TUTTI_ASSIGN(config::Config config, configuration(request));
  TUTTI_ASSIGN(const PluginFile file, find_plugin(request, config));
  TUTTI_ASSIGN(auto image, load_image(file, config));
  return open_image(request, std::move(image), config);
}

Result<int> run_side(const Request& request) {
  if (request.side == kTrialSide) return run_trial(request);
  if (request.side == kOpeningSide) return run_opening(request);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TUTTI_ASSIGN(const auto memory, SharedMemory<SharedState>::at(kSharedStateFd));
  SharedState& shared_state = *memory;
  if (request.side != "both") {
    const uint32_t role = request.side == "0" ? 0 : 1;
    TUTTI_TRY(run_role(request, role, kLineFd, shared_state));
    return 0;
  }
  int line[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) != 0) return base::system_error("cannot make a line");
  const base::Fd first(line[0]), second(line[1]);
  Status other;
  std::thread thread([&] { other = run_role(request, 1, second.get(), shared_state); });
  const Status own = run_role(request, 0, first.get(), shared_state);
  thread.join();
  TUTTI_TRY(own);
  TUTTI_TRY(other);
  return 0;
}

}  // namespace tutti::tools::plugin_test
