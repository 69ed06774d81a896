// SPDX-License-Identifier: Apache-2.0
#include "tools/session.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "communicator/own_interface.h"
#include "config/job.h"
#include "plugin/names.h"

namespace tutti::tools {
namespace {

constexpr std::string_view kCommandLine = "command line";  // the origin of settings in texts

const CLI::Validator kSetting(
    [](std::string& text) {
      const size_t equals = text.find('=');
      return equals == 0 || equals == std::string::npos ? "'" + text + "' is not key=value" : std::string();
    },
    "KEY=VALUE");

}  // namespace

std::vector<std::pair<std::string, std::string>> split_settings(const std::vector<std::string>& settings) {
  std::vector<std::pair<std::string, std::string>> split;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    split.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return split;
}

void add_settings(CLI::App& command, std::string& config_file, std::vector<std::string>& settings) {
  command.add_option("--config", config_file, "The job's configuration file (default: TUTTI_CONFIG)")
      ->option_text("FILE");
  command.add_option("--set", settings, "A setting that wins over every file; may be repeated")
      ->check(kSetting)
      ->option_text("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Session::add_options(CLI::App& command) {
  command.add_option("-n,--ranks", rank_count, "Number of ranks (default 2)")
      ->check(CLI::Range(1, 1 << 16))
      ->each([this](const std::string&) { has_rank_count = true; })
      ->option_text("N");
  command.add_option("--hosts", hosts, "Pretend that the ranks run on these hosts, in blocks: a,b")
      ->delimiter(',')
      ->option_text("NAME,...");
  add_settings(command, config_file, settings);
}

std::string Session::host(int rank) const {
  if (hosts.empty()) return {};
  return hosts[static_cast<size_t>(rank) * hosts.size() / static_cast<size_t>(rank_count)];
}

Options Session::options(int rank) const {
  Options options{config_file, split_settings(settings), std::string(kCommandLine)};
  if (!hosts.empty()) options.settings.emplace_back("host", host(rank));
  return options;
}

Result<config::Config> load_config(const std::string& file,
                                   const std::vector<std::pair<std::string, std::string>>& settings) {
  return config::load_job(file, settings, std::string(kCommandLine), "--config");
}

Status Session::check() const {
  const Options first = options(0);
  TUTTI_ASSIGN(const config::Config config, load_config(first.config_file, first.settings));
  return plugin::check_names(config);
}

Status Session::ask_launcher() {
  TUTTI_ASSIGN(auto launched, launcher::assignment_of(std::getenv));
  if (!launched) return {};
  if (launched->rank_count == 1) {
    // One process of a launcher may start all ranks of this host (srun -n 1 tutti bench -n 8).
    if (!has_rank_count) rank_count = 1;
    return {};
  }
  if (has_rank_count && rank_count != launched->rank_count) {
    return {
        Code::kInvalidArgument,
        fmt::format("{} ranks are asked for, and {} started {} processes, each of which is a rank; leave --ranks out",
                    rank_count, launched->launcher, launched->rank_count)};
  }
  rank_count = launched->rank_count;
  assignment = std::move(launched);
  return {};
}

Result<UniqueId> Session::make_id() const {
  const Options first = options(0);
  const auto config = load_config(first.config_file, first.settings);
  if (!config.ok()) return UniqueId::create();
  return communicator::create_id(*config);
}

bool Session::wants_cuda(std::string_view option) const {
  if (!option.empty()) return option == "cuda";
  const Options first = options(0);
  const auto config = load_config(first.config_file, first.settings);  // the ranks report its errors
  return config.ok() && config->text("device") == "cuda";
}

Status Session::check_cuda([[maybe_unused]] bool wanted) {
#ifndef TUTTI_HAS_CUDA
  if (wanted) {
    return {Code::kUnsupported,
            "cuda is not in this build, and --device or the setting device asks for it; build with './dev build cuda', "
            "which needs a CUDA toolkit"};
  }
#endif
  return {};
}

Options Session::control_options(int rank) const {
  Options made = options(rank);
  made.settings.emplace_back("device", "host");
  for (const char* key : {"algorithm", "protocol", "transport"}) made.settings.emplace_back(key, "auto");
  // A table of GPUs would say that it does not hold here.
  made.settings.emplace_back("plugins.tuner", "[table]");
  made.settings.emplace_back("settings.tuner.table.file", "");
  return made;
}

}  // namespace tutti::tools
