// SPDX-License-Identifier: Apache-2.0
// The effective configuration of one communicator: built-in values < site file < job file < environment < application.
// Each value knows where it came from.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/rules.h"
#include "config/schema.h"
#include "config/tree.h"
#include "config/value.h"
#include "tutti/status.h"

namespace tutti::config {

struct LoadOptions {
  std::string site_file = "/etc/tutti/tutti.yaml";  ///< may be absent; a file that TUTTI_SITE_CONFIG names must exist
  std::string job_file;                             ///< empty: TUTTI_CONFIG, or none
  std::vector<std::pair<std::string, std::string>> environment;  ///< the variables that begin with TUTTI_
  std::vector<std::pair<std::string, std::string>> settings;     ///< settings of the last layer: key, value
  std::string settings_origin = "application";                   ///< the name of that layer in texts
  std::string job_file_origin = {};                              ///< the name of the option or field of `job_file`
};

/// The TUTTI_* variables of this process; none where it runs with more rights than its caller (AT_SECURE).
std::vector<std::pair<std::string, std::string>> process_environment();

/// Immutable once loaded, except for add(); then any thread.
class Config {
 public:
  /// kConfig or kNotFound; the text names file, line and column, the key, and the allowed values. If other users may
  /// change a file, load() refuses it or warns (plugins.trust, as the layers above and below the file set it). Each key
  /// has a variable (TUTTI_SHM_SLOTS). TUTTI_SET="key=value;key=value" wins over these variables. An unknown TUTTI_*
  /// variable is an error, too.
  static Result<Config> load(const LoadOptions& options);

  // The value of a declared key of this type. A different type is a bug of the caller.
  bool boolean(std::string_view key) const { return value(key).integer != 0; }
  int64_t integer(std::string_view key) const { return value(key).integer; }
  uint64_t size_bytes(std::string_view key) const { return static_cast<uint64_t>(value(key).integer); }
  std::chrono::nanoseconds duration(std::string_view key) const { return std::chrono::nanoseconds(value(key).integer); }
  const std::string& text(std::string_view key) const { return value(key).text; }
  const std::vector<std::string>& list(std::string_view key) const { return value(key).list; }
  /// The items of a list, with commas between them.
  std::string joined(std::string_view key) const;
  const std::string& origin(std::string_view key) const;
  /// The origin of a declared key's value: "job.yaml:3:12", "environment TUTTI_SET", "built-in".
  const std::string& place(std::string_view key) const;
  /// The origin of item `index` of a declared list; outside of YAML the origin of the list.
  const std::string& item_place(std::string_view key, size_t index) const;
  const std::vector<Rule>& rules() const { return rules_; }

  /// Any declared key. For an undeclared key the answer is empty, and the log says so.
  const Value& value(std::string_view key) const;

  /// Declares a plugin's settings and takes their values from the layers. kConfig for a setting that the plugin does
  /// not have.
  Status add(std::string_view kind, std::string_view plugin, const std::vector<Key>& keys);
  /// Every setting of a plugin that a layer gives, lowest layer first. The key may be the name of a variable.
  const std::vector<Entry>& plugin_settings() const { return pending_; }
  /// "job.yaml:3:5: settings.net.ib.device": given for plugins that were not added, so without effect so far. `kind`:
  /// of plugins; empty: all.
  std::vector<std::string> unused(std::string_view kind = {}) const;

  /// A value that a later layer has replaced.
  struct Overridden {
    std::string value;
    std::string origin;
  };
  /// One line of `tutti config show`.
  struct Item {
    std::string key;
    std::string value;
    std::string origin;
    std::string help;
    std::vector<Overridden> overrides;  ///< the latest value first
  };
  std::vector<Item> items() const;  ///< by key
  /// "key=value" of every key on which ranks must agree, and the rules. Layers and order of the files do not matter.
  std::vector<std::string> agreement() const;
  /// Of agreement(); equal on all ranks of a communicator.
  uint64_t hash() const;

 private:
  struct Slot {
    Key key;
    Value value;
    std::string origin;
    std::string place;
    std::vector<std::string> item_places = {};
    std::vector<Overridden> overrides = {};
  };
  Status declare(const Key& key);
  static std::optional<std::string> trust_above_files(const LoadOptions& options);
  Status merge_file(const std::string& path, std::string_view named_by, const std::string& layer,
                    const std::optional<std::string>& trust);
  Status merge_environment(const std::vector<std::pair<std::string, std::string>>& environment);
  Status merge_assignments(std::string_view list, const std::string& origin);
  Status set(const Entry& entry);
  Status apply(const Entry& entry, Slot& slot);
  Status keep(const Entry& entry);
  std::vector<std::string> names() const;

  std::map<std::string, Slot, std::less<>> slots_;
  std::vector<Entry> pending_;  // settings.* for plugins to come, lowest layer first; a key may be a variable's name
  std::vector<Rule> rules_;
};

}  // namespace tutti::config
