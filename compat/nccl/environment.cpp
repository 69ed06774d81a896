// SPDX-License-Identifier: Apache-2.0
#include "nccl/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "nccl/variables.h"

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

/// The items of a list with commas, without empty items.
std::vector<std::string_view> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) items.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return items;
}

/// "^docker,lo" excludes both, and "=a,b" means both exactly; Tutti has a mark at each entry.
std::optional<std::string> interfaces_list(std::string_view text) {
  const size_t marks = std::min(text.find_first_not_of("^="), text.size());
  const std::string_view mark = text.substr(0, marks);
  std::string out = "[";
  for (const std::string_view item : items_of(text.substr(marks))) {
    out += fmt::format("{}{}{}", out.size() > 1 ? ", " : "", mark, item);
  }
  return out + "]";
}

std::optional<std::string> channels(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return std::to_string(std::min(number, kMaxChannels));
}

/// NCCL cuts a channel's buffer into 8 slots.
std::optional<std::string> slot_size(std::string_view text) {
  constexpr uint64_t kSlots = 8;
  constexpr uint64_t kLeast = 512;
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes < kSlots * kLeast) return std::nullopt;
  return std::to_string(bytes / kSlots / kLeast * kLeast);
}

/// Applies a list of permitted names, or after "^" of excluded names, to Tutti's `names`. If all names are left, there
/// is nothing to set. If one name is left, that name. Every other selection, and choices per function, are rules in a
/// job file here.
template <size_t kCount>
std::optional<std::string> one_of(std::string_view text, const std::array<std::string_view, kCount>& names) {
  if (text.find_first_of(":;@") != std::string_view::npos) return std::nullopt;
  const bool excludes = text.starts_with('^');
  const std::string list = "," + lower(text.substr(excludes ? 1 : 0)) + ",";
  std::vector<std::string> left;
  for (const std::string_view name : names) {
    const bool listed = list.find(fmt::format(",{},", name)) != std::string::npos;
    if (listed != excludes) left.emplace_back(name);
  }
  if (left.size() == kCount) return "";
  if (left.size() == 1) return left.front();
  return std::nullopt;
}
std::optional<std::string> algorithm(std::string_view text) {
  return one_of(text, std::array<std::string_view, 2>{"ring", "tree"});
}
std::optional<std::string> protocol(std::string_view text) {
  return one_of(text, std::array<std::string_view, 3>{"simple", "ll", "ll128"});
}

/// A variable of 0 or 1; 0 sets nothing.
std::optional<std::string> if_one(std::string_view text, const char* value) {
  if (text == "0") return "";
  return text == "1" ? std::optional<std::string>(value) : std::nullopt;
}
/// Between GPUs only: processors of one host share memory either way.
std::optional<std::string> without_p2p(std::string_view text) {
  return if_one(text, "shm");
}
std::optional<std::string> affinity(std::string_view text) {
  return if_one(text, "ignore_mask");
}

/// NCCL_TUNER_PLUGIN names one file; "none" stands for NCCL's own tuner.
std::optional<std::string> tuner(std::string_view text) {
  return text == "none" ? "" : fmt::format("[nccl:{}]", text);
}

struct Variable {
  const char* name;
  const char* key;
  Convert convert;
};

// If two variables mean the same, the first variable that is set wins.
constexpr std::array kVariables = {
    Variable{"NCCL_DEBUG", "log.level", level},
    Variable{"NCCL_DEBUG_FILE", "log.file", as_it_is},
    Variable{"NCCL_SOCKET_IFNAME", "bootstrap.interface", interfaces_list},
    Variable{"NCCL_MAX_CTAS", "channels", channels},
    Variable{"NCCL_MAX_NCHANNELS", "channels", channels},
    Variable{"NCCL_ALGO", "algorithm", algorithm},
    Variable{"NCCL_PROTO", "protocol", protocol},
    Variable{"NCCL_P2P_DISABLE", "transport", without_p2p},
    Variable{"NCCL_BUFFSIZE", "p2p.slot_size", slot_size},
    Variable{"NCCL_TUNER_PLUGIN", "plugins.tuner", tuner},
    Variable{"NCCL_TOPO_FILE", "topology.file", as_it_is},
    Variable{"NCCL_HOSTID", "host", as_it_is},
    Variable{"NCCL_IGNORE_CPU_AFFINITY", "affinity", affinity},
};

// Read elsewhere.
constexpr std::array<std::string_view, 6> kOthers = {"NCCL_COMM_BLOCKING",         "NCCL_COMM_ID", "NCCL_CONF_FILE",
                                                     "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_NET",     "NCCL_NET_PLUGIN"};

// Programs written for NCCL expect it to wait for ever, and have watchdogs of their own that are told how long.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPatience = {
    {{"timeouts.bootstrap", "10m"}, {"timeouts.operation", "1h"}}};

bool has_effect(std::string_view name) {
  return std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end() ||
         std::any_of(kVariables.begin(), kVariables.end(),
                     [&](const Variable& variable) { return name == variable.name; });
}

void name_those_without_effect() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::vector<std::string> names = variables();
    std::erase_if(names, has_effect);
    if (!names.empty()) log::info("nccl: set, but without effect on Tutti: {}", fmt::join(names, ", "));
  });
}

/// The networks nccl:FILE of NCCL_NET_PLUGIN, a list with commas; "none" stands for no plugin.
std::vector<std::string> networks_of_files(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view file : items_of(text)) {
    if (file != "none") out.push_back(fmt::format("nccl:{}", file));
  }
  return out;
}

/// The setting for NCCL_NET and NCCL_NET_PLUGIN. NCCL_NET names a network of Tutti ("socket"), or the network that the
/// one file of NCCL_NET_PLUGIN brings. Without NCCL_NET, the files come before the networks of plugins.network.
struct NetworkSetting {
  std::string key;  ///< empty: the variables set nothing
  std::string value;
  std::string origin;
};
NetworkSetting network_setting(const config::Config& given) {
  const std::optional<std::string> net = variable("NCCL_NET");
  const std::optional<std::string> plugin = variable("NCCL_NET_PLUGIN");
  std::vector<std::string> files = networks_of_files(plugin.value_or(""));
  if (net) {
    const std::string name = lower(*net);
    if (files.size() != 1 || name == "socket" || name == "ib") return {"network", name, "NCCL_NET=" + *net};
    return {"network", files.front(), fmt::format("NCCL_NET={}, NCCL_NET_PLUGIN={}", *net, *plugin)};
  }
  if (files.empty()) return {};
  const std::vector<std::string> others = given.list("plugins.network");
  files.insert(files.end(), others.begin(), others.end());
  return {"plugins.network", fmt::format("[{}]", fmt::join(files, ", ")), "NCCL_NET_PLUGIN=" + *plugin};
}

/// The directory of plugins in the build and in the installation: lib/tutti/plugins, beside lib/nccl/libnccl.so.2.
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
  std::vector<std::string> understood;
  for (const Variable& entry : kVariables) {
    const auto text = variable(entry.name);
    if (!text) continue;
    const auto value = entry.convert(*text);
    if (!value) strange.push_back(fmt::format("{}={}", entry.name, *text));
    if (!value || value->empty() || !settings.propose(entry.key, *value)) continue;
    understood.push_back(fmt::format("{} = {} ({}={})", entry.key, *value, entry.name, *text));
  }
  if (const NetworkSetting network = network_setting(settings.given_);
      !network.key.empty() && settings.propose(network.key, network.value)) {
    understood.push_back(fmt::format("{} = {} ({})", network.key, network.value, network.origin));
  }
  for (const auto& [key, value] : kPatience) settings.propose(key, std::string(value));
  TUTTI_TRY(settings.start_log());
  if (!understood.empty()) log::info("nccl: settings from variables: {}", fmt::join(understood, ", "));
  if (!strange.empty()) log::warn("nccl: ignored, as Tutti has nothing like it: {}", fmt::join(strange, ", "));
  name_those_without_effect();
  return settings;
}

bool Settings::propose(std::string_view key, std::string value) {
  const auto same = [&](const auto& setting) { return setting.first == key; };
  const bool decided =
      given_.origin(key) != "built-in" || std::any_of(options_.settings.begin(), options_.settings.end(), same);
  if (!decided) demand(key, std::move(value));
  return !decided;
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

/// Sets up the log before the first communicator does, because errors in the variables must be logged, too.
Status Settings::start_log() const {
  TUTTI_ASSIGN(const config::Config all, load());
  log::set_failure_level(log::Level::kInfo);  // report() logs each failure that a call returns
  return log::configure(log::level_from(all.text("log.level")), all.text("log.file"));
}

Result<std::string> Settings::interfaces() const {
  TUTTI_ASSIGN(const config::Config all, load());
  return all.joined("bootstrap.interface");
}

bool switched(std::string_view name, bool otherwise) {
  const auto text = variable(name);
  return text == "0" || text == "1" ? text == "1" : otherwise;
}

}  // namespace tutti::nccl
