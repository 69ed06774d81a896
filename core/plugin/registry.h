// SPDX-License-Identifier: Apache-2.0
// The plugins of one communicator: all plugins that the configuration names, loaded and open. They are closed in
// reverse order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugin/loader.h"

namespace tutti::plugin {

/// Immutable once loaded; any thread.
class Registry {
 public:
  /// A network that the configuration names, in its order of preference.
  struct Network {
    std::string name;
    std::shared_ptr<Plugin> plugin;  ///< null: the network does not work on this machine
    Status why;                      ///< why `plugin` is null
    std::string identity;
  };

  /// Loads algorithms, protocols and the tuner that `config` names, and possible_networks() if `with_network`. A plugin
  /// that cannot serve is an error, unless plugins.on_missing is next. If `network` is auto, a network that cannot be
  /// opened on this machine is an error only if no further network exists. Declares the plugins' settings in `config`.
  static Result<std::shared_ptr<Registry>> load(config::Config& config, bool with_network);
  ~Registry();
  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  std::span<const std::shared_ptr<Plugin>> of(Kind kind) const { return plugins_[static_cast<uint32_t>(kind)]; }
  /// "net.socket 0.1.0, ABI 0.1" of each plugin: ranks must agree on these texts.
  std::vector<std::string> identity() const;
  /// All networks, with the networks that do not work on this machine.
  const std::vector<Network>& networks() const { return networks_; }

 private:
  Status load_kind(Kind kind, config::Config& config, const std::vector<std::string>& names);
  Result<std::shared_ptr<Plugin>> load_one(Kind kind, const std::string& name, config::Config& config);

  std::vector<std::shared_ptr<Plugin>> plugins_[TUTTI_KIND_TUNER + 1];
  std::vector<Network> networks_;
};

}  // namespace tutti::plugin
