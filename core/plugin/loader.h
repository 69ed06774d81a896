// SPDX-License-Identifier: Apache-2.0
// Loads one plugin: note, checks, dlopen, entry, checks, settings, open. Each failure is one sentence with a code
// TUTTI-Pnn: the problem, the place, the reason, the remedy.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plugin/failure_text.h"
#include "plugin/note.h"
#include "tutti/status.h"

namespace tutti::plugin {

/// A loaded image: code and table, not yet opened. The image stays in memory to the end of the process, since threads,
/// thread-local destructors and device runtimes may still point into it. TUTTI_UNLOAD=1 unloads it (a mode for tests
/// and leak checks).
class Image {
 public:
  /// `kind` and `name` come from the configuration. P02 no plugin, P03 different kind or name, P04 different ABI, P05
  /// does not load, P06 table wrong, P09 other users may change the file (`trust`: the value of plugins.trust). If a
  /// static initialiser throws or ends the process, the process ends with code 1 or SIGABRT, and stderr names the file.
  /// `before`: gets the name of each step that runs code of the plugin, before the step.
  static Result<std::shared_ptr<Image>> load(Kind kind, const std::string& name, const std::filesystem::path& file,
                                             const std::string& trust = "owner",
                                             const std::function<void(std::string_view step)>& before = {});
  virtual ~Image() = default;

  const Note& note() const { return note_; }
  const std::filesystem::path& file() const { return file_; }
  const tutti_plugin& table() const { return table_; }
  /// The settings that it declares: as the plugin gives them, and as the configuration names them.
  std::vector<tutti_config_key> declared() const;
  std::vector<config::Key> settings() const;

 protected:
  Note note_;
  std::filesystem::path file_;
  tutti_plugin table_{};
};

/// An open plugin. Its functions have the threads that their table states. This object is for any thread.
class Plugin {
 public:
  /// Declares the plugin's settings in `config`. P07.
  static Status declare(const Image& image, config::Config& config);
  /// Declares the plugin's settings in `config` and opens it. P07 settings, P08 open failed, P09 other users may change
  /// the code that the plugin itself loads. `file`: replaces the value of the setting `file`; empty: replaces nothing.
  static Result<std::shared_ptr<Plugin>> open(std::shared_ptr<Image> image, config::Config& config,
                                              const std::string& file = {});
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  Kind kind() const { return image_->note().kind; }
  const std::string& name() const { return image_->note().name; }
  const std::string& version() const { return image_->note().version; }
  uint64_t capabilities() const { return image_->table().capabilities; }
  const Image& image() const { return *image_; }
  void* self() const { return self_; }
  template <class Ops>
  const Ops* ops() const {
    return static_cast<const Ops*>(image_->table().ops);
  }

 private:
  explicit Plugin(std::shared_ptr<Image> image) : image_(std::move(image)) {}
  static void log_thunk(void* context, int32_t level, tutti_str text);
  static void fail_thunk(void* context, tutti_str text);
  static int32_t config_thunk(void* context, tutti_str name, tutti_value* out);

  std::shared_ptr<Image> image_;
  tutti_host host_{};
  void* self_ = nullptr;  ///< the plugin's own; null is as good as any
  bool open_ = false;
  struct Setting {
    std::string name;
    config::Type type;
    config::Value value;
    std::vector<tutti_str> list;
  };
  Status set_file(const std::string& file, const std::string& trust);

  std::vector<Setting> settings_;
};

/// The `struct_size` of a struct of the ABI.
uint32_t size_of_struct(const void* address);

/// A plugin's table of operations in the size that this host knows: entries beyond the plugin's table are null.
std::vector<uint64_t> whole_table(Kind kind, const void* ops);

/// Why a plugin of the kind cannot have these capabilities: its ABI does not define some of them (PLG-8). Empty: it
/// can.
std::string unknown_capabilities(Kind kind, uint64_t capabilities);

/// The missing entry in a kind's table of operations: a mandatory entry, or an entry that a claimed capability names
/// (PLG-8). Empty: none is missing.
std::string missing_entry(Kind kind, uint64_t capabilities, const void* ops);

}  // namespace tutti::plugin
