// SPDX-License-Identifier: Apache-2.0
#include "plugin/loader.h"

#define BOOST_DLL_USE_STD_FS
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>
#include <cstring>

#include "config/trust.h"
#include "log/log.h"
#include "plugin/initialiser_guard.h"

namespace tutti::plugin {
namespace {

/// The text of dlerror() within that of an exception of Boost.DLL, or all of it.
std::string_view loader_text(std::string_view text) {
  constexpr std::string_view kBegin = "dlerror system message: ";
  const size_t begin = text.find(kBegin);
  const size_t end = text.rfind("): ");
  if (begin == std::string_view::npos || end == std::string_view::npos) return text;
  return text.substr(begin + kBegin.size(), end - begin - kBegin.size());
}

std::string_view view(tutti_str text) {
  return {text.data, text.size};
}

bool unloads() {
  const char* value = secure_getenv("TUTTI_UNLOAD");
  return value != nullptr && std::string_view(value) == "1";
}

Status refuse(const char* code, const std::filesystem::path& file, std::string_view why) {
  return {Code::kVersionMismatch, fmt::format("{} plugin {} {}", code, file.string(), why)};
}

/// The settings from which an operator can remove the name of a plugin.
std::string settings_that_name(Kind kind) {
  return kind == Kind::kNetwork ? "network and plugins.network" : fmt::format("plugins.{}", to_string(kind));
}

/// TUTTI-P06: the plugin's description of itself cannot be used.
Status broken(const std::filesystem::path& file, std::string_view why) {
  return refuse("TUTTI-P06", file, fmt::format("{}; get another build of it", why));
}

/// Checks of the note, before any code of the plugin runs.
Status check_note(Kind kind, const std::string& name, const std::filesystem::path& file, const Note& note) {
  if (note.kind != kind) {
    return refuse("TUTTI-P03", file,
                  fmt::format("is a {} plugin, not a {} plugin; name it in plugins.{}", to_string(note.kind),
                              to_string(kind), to_string(note.kind)));
  }
  const bool by_path = std::filesystem::path(name).is_absolute();
  if ((!by_path && note.name != name) || file.filename() != file_name(kind, note.name)) {
    return refuse("TUTTI-P03", file,
                  fmt::format("calls itself '{}' in its note; its file should be named {}", note.name,
                              file_name(note.kind, note.name)));
  }
  const std::string refused = refused_abi(note);
  return refused.empty() ? Status() : refuse("TUTTI-P04", file, refused);
}

/// The bytes of tutti_plugin in its first version. They contain each field that a host needs.
constexpr size_t kSmallestTable = offsetof(tutti_plugin, ops) + sizeof(void*);

/// The same of tutti_config_key.
constexpr size_t kSmallestKey = offsetof(tutti_config_key, maximum) + sizeof(int64_t);

class LoadedImage : public Image {
 public:
  LoadedImage(Note note, std::filesystem::path file) {
    note_ = std::move(note);
    file_ = std::move(file);
  }

  Status load_code(const std::function<void(std::string_view)>& before) {
    if (before) before("static initialisers");
    try {
      auto mode = boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local;
      // Since its check, only trusted users can have changed the real file; the path may contain links.
      const std::filesystem::path real = std::filesystem::canonical(file_);
      const InitialiserGuard guard(file_.string());
      if (!unloads()) mode = static_cast<boost::dll::load_mode::type>(static_cast<int>(mode) | RTLD_NODELETE);
      library_.load(real, mode);
    } catch (const std::exception& error) {
      return {Code::kUnsupported,
              fmt::format("TUTTI-P05 plugin {} does not load: {}; install the library that it needs, or link it with "
                          "-Wl,-z,defs to find symbols that no library defines",
                          file_.string(), loader_text(error.what()))};
    }
    if (!library_.has(TUTTI_PLUGIN_ENTRY_NAME)) {
      return broken(file_, fmt::format("exports no {} (PLG-1)", TUTTI_PLUGIN_ENTRY_NAME));
    }
    auto* entry = &library_.get<int32_t(tutti_plugin*)>(TUTTI_PLUGIN_ENTRY_NAME);
    table_.struct_size = sizeof table_;
    if (before) before("entry '" TUTTI_PLUGIN_ENTRY_NAME "'");
    if (const int32_t code = entry(&table_); code != TUTTI_OK) {
      return broken(file_, fmt::format("refuses to describe itself: {}", to_string(static_cast<Code>(code))));
    }
    TUTTI_TRY(check_table());
    // Entries beyond the plugin's table are null, not memory behind it.
    ops_ = whole_table(note_.kind, table_.ops);
    table_.ops = ops_.data();
    return {};
  }

 private:
  Status check_table() const {
    if (table_.struct_size < kSmallestTable) {
      return broken(file_, fmt::format("has a table of {} bytes where {} are needed (PLG-5)", table_.struct_size,
                                       kSmallestTable));
    }
    if (table_.kind != static_cast<uint32_t>(note_.kind) || view(table_.name) != note_.name ||
        Abi{table_.abi_major, table_.abi_minor} != note_.abi || view(table_.version) != note_.version) {
      return broken(
          file_,
          fmt::format(
              "is {} '{}' {}, ABI {}.{}, in its table and {} '{}' {}, ABI {}.{}, in its note (PLG-2); its author "
              "gives TUTTI_PLUGIN and tutti_add_plugin the same name and version",
              to_string(static_cast<Kind>(table_.kind)), view(table_.name), view(table_.version), table_.abi_major,
              table_.abi_minor, to_string(note_.kind), note_.name, note_.version, note_.abi.major, note_.abi.minor));
    }
    if (table_.open == nullptr || table_.close == nullptr) return broken(file_, "has no open or no close");
    TUTTI_TRY(check_keys());
    std::string why = unknown_capabilities(note_.kind, table_.capabilities);
    if (why.empty()) why = missing_entry(note_.kind, table_.capabilities, table_.ops);
    return why.empty() ? Status() : broken(file_, fmt::format("cannot be used: {}", why));
  }

  Status check_keys() const {
    if (table_.config_keys == nullptr && table_.config_key_count != 0)
      return broken(file_, "has settings at address 0");
    const auto* at = reinterpret_cast<const char*>(table_.config_keys);
    for (uint64_t i = 0; i < table_.config_key_count; ++i) {
      const uint32_t bytes = size_of_struct(at);
      if (bytes < kSmallestKey || bytes % alignof(tutti_config_key) != 0) {
        return broken(file_, fmt::format("has a setting {} of {} bytes where at least {} are needed (PLG-5)", i, bytes,
                                         kSmallestKey));
      }
      const auto& key = *reinterpret_cast<const tutti_config_key*>(at);
      if (key.type < TUTTI_CONFIG_BOOL || key.type > TUTTI_CONFIG_LIST) {
        return broken(file_, fmt::format("has a setting '{}' of the unknown type {}; use a TUTTI_CONFIG_* value",
                                         view(key.name), key.type));
      }
      if (view(key.name).empty() || view(key.name).find('.') != std::string_view::npos) {
        return broken(
            file_, fmt::format("has a setting of the name '{}'; a name is not empty and has no dot", view(key.name)));
      }
      at += bytes;
    }
    return {};
  }

  boost::dll::shared_library library_;
  std::vector<uint64_t> ops_;
};

}  // namespace

Result<std::shared_ptr<Image>> Image::load(Kind kind, const std::string& name, const std::filesystem::path& file,
                                           const std::string& trust,
                                           const std::function<void(std::string_view)>& before) {
  TUTTI_TRY(config::check_trust(file, "TUTTI-P09 the plugin", trust));
  auto note = read_note(file);
  if (!note.ok()) {
    return Status(note.status().code(), fmt::format("TUTTI-P02 {} {}; remove it, or put the plugin there",
                                                    file.string(), note.status().text()));
  }
  TUTTI_TRY(check_note(kind, name, file, *note));
  auto image = std::make_shared<LoadedImage>(*std::move(note), file);
  TUTTI_TRY(image->load_code(before));
  return std::shared_ptr<Image>(std::move(image));
}

std::vector<tutti_config_key> Image::declared() const {
  std::vector<tutti_config_key> keys(table_.config_key_count);
  const auto* at = reinterpret_cast<const char*>(table_.config_keys);
  for (tutti_config_key& key : keys) {
    const uint32_t bytes = size_of_struct(at);
    std::memcpy(&key, at, std::min<size_t>(bytes, sizeof key));
    at += bytes;
  }
  return keys;
}

std::vector<config::Key> Image::settings() const {
  std::vector<config::Key> settings;
  for (const tutti_config_key& key : declared()) {
    settings.push_back(config::plugin_key(short_name(note_.kind), note_.name, key));
  }
  return settings;
}

Status Plugin::declare(const Image& image, config::Config& config) {
  const Status added = config.add(short_name(image.note().kind), image.note().name, image.settings());
  return added.with_context("TUTTI-P07");
}

/// The file that a network or a tuner reads. The configuration names it in the setting `file`, or as NAME:FILE. A
/// shared object is code, and has to be as trusted as a plugin.
Status Plugin::set_file(const std::string& file, const std::string& trust) {
  const auto setting = std::find_if(settings_.begin(), settings_.end(), [](const Setting& one) {
    return one.name == "file" && one.type == config::Type::kText;
  });
  if (setting == settings_.end()) {
    if (file.empty()) return {};
    return {Code::kConfig, fmt::format("TUTTI-P07 the {} '{}' loads no file: it has no setting 'file'; write '{}' "
                                       "instead of '{}:{}'",
                                       to_string(kind()), name(), name(), name(), file)};
  }
  if (!file.empty()) setting->value.text = file;
  const std::filesystem::path named = setting->value.text;
  const bool is_code = named.filename().string().find(".so") != std::string::npos;
  if (!is_code || !named.has_parent_path()) return {};  // the dynamic linker looks for a file without a folder
  return config::check_trust(named, fmt::format("TUTTI-P09 the file of the {} '{}',", to_string(kind()), name()),
                             trust);
}

namespace {

/// "; set: settings.net.socket.interface (job job.yaml:3:12)": the settings that are not built in. Empty: there are
/// none.
std::string settings_of_user(const std::vector<config::Key>& keys, const config::Config& config) {
  std::string text;
  for (const config::Key& key : keys) {
    if (config.origin(key.name) == "built-in") continue;
    text += fmt::format("{}{} ({})", text.empty() ? "; set: " : ", ", key.name, config.origin(key.name));
  }
  return text;
}

}  // namespace

Result<std::shared_ptr<Plugin>> Plugin::open(std::shared_ptr<Image> image, config::Config& config,
                                             const std::string& file) {
  std::shared_ptr<Plugin> plugin(new Plugin(std::move(image)));
  const tutti_plugin& table = plugin->image_->table();
  TUTTI_TRY(declare(*plugin->image_, config));
  const std::vector<config::Key> keys = plugin->image_->settings();
  const std::vector<tutti_config_key> declared = plugin->image_->declared();
  for (size_t i = 0; i < keys.size(); ++i) {
    Setting setting{std::string(view(declared[i].name)), keys[i].type, config.value(keys[i].name), {}};
    plugin->settings_.push_back(std::move(setting));
  }
  TUTTI_TRY(plugin->set_file(file, config.text("plugins.trust")));
  // Plugins may also read how long a peer may be silent, and whether the host makes broken connections again. No
  // setting of a plugin has a dot in its name.
  for (const auto& [name, type] :
       {std::pair("timeouts.peer_loss", config::Type::kDuration), std::pair("net.failover", config::Type::kBool)}) {
    plugin->settings_.push_back({name, type, config.value(name), {}});
  }
  for (Setting& setting : plugin->settings_) {
    for (const std::string& item : setting.value.list) setting.list.push_back({item.data(), item.size()});
  }
  const Abi abi = abi_of(plugin->kind());
  plugin->host_ = {sizeof(tutti_host),
                   static_cast<uint16_t>(abi.major),
                   static_cast<uint16_t>(abi.minor),
                   plugin.get(),
                   log_thunk,
                   fail_thunk,
                   config_thunk};
  take_failure_text();
  if (const int32_t code = table.open(&plugin->host_, &plugin->self_); code != TUTTI_OK) {
    return Status(
        code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code),
        fmt::format("TUTTI-P08 {} plugin '{}' ({}) cannot serve here: {}{}; correct the cause, or take it out of {}",
                    to_string(plugin->kind()), plugin->name(), plugin->image_->file().string(), take_reason(),
                    settings_of_user(keys, config), settings_that_name(plugin->kind())));
  }
  plugin->open_ = true;
  return plugin;
}

Plugin::~Plugin() {
  if (open_) image_->table().close(self_);
}

void Plugin::log_thunk(void* context, int32_t level, tutti_str text) {
  const auto& plugin = *static_cast<const Plugin*>(context);
  const auto severity = static_cast<log::Level>(level);
  if (level < TUTTI_LOG_ERROR || level > TUTTI_LOG_TRACE || !log::enabled(severity)) return;
  log::write(severity, fmt::format("{}.{} {}", short_name(plugin.kind()), plugin.name(), view(text)));
}

void Plugin::fail_thunk(void* context, tutti_str text) {
  leave_failure_text(std::string(view(text)), static_cast<const Plugin*>(context)->self());
}

int32_t Plugin::config_thunk(void* context, tutti_str name, tutti_value* out) {
  const auto& plugin = *static_cast<const Plugin*>(context);
  for (const Setting& setting : plugin.settings_) {
    if (setting.name != view(name)) continue;
    tutti_value value{};
    value.struct_size = std::min<uint32_t>(out->struct_size, sizeof value);
    value.type = static_cast<uint32_t>(setting.type);
    value.integer = setting.value.integer;
    value.text = {setting.value.text.data(), setting.value.text.size()};
    value.list = setting.list.data();
    value.list_count = setting.list.size();
    std::memcpy(out, &value, value.struct_size);  // a plugin may know fewer fields (PLG-5)
    return TUTTI_OK;
  }
  return TUTTI_NOT_FOUND;
}

}  // namespace tutti::plugin
