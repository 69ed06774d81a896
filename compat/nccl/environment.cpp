// SPDX-License-Identifier: Apache-2.0
#include "nccl/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "log/log.h"

namespace tutti::nccl {
namespace {

constexpr int kMaxChannels = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// From a variable's value to the setting's, or nullopt where Tutti has nothing like it.
using Convert = std::optional<std::string> (*)(std::string_view);

std::optional<std::string> as_it_is(std::string_view text) {
  return std::string(text);
}

std::optional<std::string> level(std::string_view text) {
  const std::string name = lower(text);
  if (name == "version" || name == "warn") return "warn";
  if (name == "info" || name == "trace") return name;
  return std::nullopt;
}

/// "^docker,lo" excludes both, and "=a,b" means both exactly; Tutti has a mark at each entry.
std::optional<std::string> interfaces_list(std::string_view text) {
  const size_t marks = std::min(text.find_first_not_of("^="), text.size());
  const std::string_view mark = text.substr(0, marks);
  std::string out = "[";
  for (std::string_view rest = text.substr(marks); !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) out += fmt::format("{}{}{}", out.size() > 1 ? ", " : "", mark, rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return out + "]";
}

std::optional<std::string> channels(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return std::to_string(std::min(number, kMaxChannels));
}

/// One name that Tutti has. Lists, exclusions and choices per function are rules in a job file here.
template <size_t kCount>
std::optional<std::string> one_of(std::string_view text, const std::array<std::string_view, kCount>& names) {
  const std::string name = lower(text);
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  return name;
}
std::optional<std::string> algorithm(std::string_view text) {
  return one_of(text, std::array<std::string_view, 2>{"ring", "tree"});
}
std::optional<std::string> protocol(std::string_view text) {
  return one_of(text, std::array<std::string_view, 3>{"simple", "ll", "ll128"});
}

struct Variable {
  const char* name;
  const char* key;
  Convert convert;
};

// The first one that is set wins where two mean the same.
constexpr std::array kVariables = {
    Variable{"NCCL_DEBUG", "log.level", level},
    Variable{"NCCL_DEBUG_FILE", "log.file", as_it_is},
    Variable{"NCCL_SOCKET_IFNAME", "bootstrap.interface", interfaces_list},
    Variable{"NCCL_MAX_CTAS", "channels", channels},
    Variable{"NCCL_MAX_NCHANNELS", "channels", channels},
    Variable{"NCCL_ALGO", "algorithm", algorithm},
    Variable{"NCCL_PROTO", "protocol", protocol},
    Variable{"NCCL_TOPO_FILE", "topology.file", as_it_is},
    Variable{"NCCL_HOSTID", "host", as_it_is},
};

// Read elsewhere: by blocking_of().
constexpr std::string_view kBlocking = "NCCL_COMM_BLOCKING";

bool has_effect(std::string_view name) {
  return name == kBlocking || std::any_of(kVariables.begin(), kVariables.end(),
                                          [&](const Variable& variable) { return name == variable.name; });
}

void name_those_without_effect() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::vector<std::string> names;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
      if (name.starts_with("NCCL_") && !has_effect(name)) names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    if (!names.empty()) log::info("nccl: set, but without effect on Tutti: {}", fmt::join(names, ", "));
  });
}

/// Where the build and the installation put plugins: lib/tutti/plugins, beside lib/nccl/libnccl.so.2.
std::filesystem::path plugin_directory() {
  static const int kHere = 0;
  Dl_info info{};
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const auto library = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : library.parent_path().parent_path() / "tutti" / "plugins";
}

/// The directories given come first.
std::string plugin_path(const config::Config& given) {
  std::vector<std::string> path = given.list("plugins.path");
  if (const auto own = plugin_directory(); !own.empty()) path.push_back(own.string());
  return fmt::format("[{}]", fmt::join(path, ", "));
}

}  // namespace

Result<Settings> Settings::of_process() {
  config::LoadOptions load;
  load.environment = config::process_environment();
  TUTTI_ASSIGN(config::Config given, config::Config::load(load));
  Settings settings(std::move(given));
  settings.demand("device", "cuda");
  settings.demand("plugins.path", plugin_path(settings.given_));
  std::vector<std::string> strange;
  for (const Variable& variable : kVariables) {
    const char* text = secure_getenv(variable.name);
    if (text == nullptr || *text == '\0') continue;
    const auto value = variable.convert(text);
    if (value) {
      settings.propose(variable.key, *value);
    } else {
      strange.push_back(fmt::format("{}={}", variable.name, text));
    }
  }
  TUTTI_TRY(settings.start_log());
  if (!strange.empty()) log::warn("nccl: ignored, as Tutti has nothing like it: {}", fmt::join(strange, ", "));
  name_those_without_effect();
  return settings;
}

void Settings::propose(std::string_view key, std::string value) {
  const auto same = [&](const auto& setting) { return setting.first == key; };
  const bool decided =
      given_.origin(key) != "built-in" || std::any_of(options_.settings.begin(), options_.settings.end(), same);
  if (!decided) demand(key, std::move(value));
}

void Settings::demand(std::string_view key, std::string value) {
  options_.settings.emplace_back(key, std::move(value));
}

Result<config::Config> Settings::load() const {
  config::LoadOptions load;
  load.environment = config::process_environment();
  load.settings = options_.settings;
  return config::Config::load(load);
}

/// Before the first communicator does: what is wrong with the variables has to be told, too.
Status Settings::start_log() const {
  TUTTI_ASSIGN(const config::Config all, load());
  return log::configure(log::level_from(all.text("log.level")), all.text("log.file"));
}

Result<std::string> Settings::interfaces() const {
  TUTTI_ASSIGN(const config::Config all, load());
  return fmt::format("{}", fmt::join(all.list("bootstrap.interface"), ","));
}

bool blocking_of(bool configured) {
  const char* text = secure_getenv(kBlocking.data());
  if (text == nullptr || (std::string_view(text) != "0" && std::string_view(text) != "1")) return configured;
  return *text == '1';
}

}  // namespace tutti::nccl
