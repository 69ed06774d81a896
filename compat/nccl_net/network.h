// SPDX-License-Identifier: Apache-2.0
// The network plugin of Tutti that serves NCCL's connections, open once in this process, and its devices.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "nccl_net/settings.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "tutti/status.h"

namespace tutti::nccl_net {

/// A device that registers memory of the host.
struct Device {
  uint32_t index = 0;  ///< in the list of the network plugin
  std::string name;
  std::string pci_path;
  tutti_net_properties properties{};
  uint32_t most_receives = 1;
};

/// Immutable, except for the plugin's own state. Any thread.
class Network {
 public:
  /// The network of this process. The first call that succeeds opens it, and it stays open: NCCL asks for devices
  /// without a context. Each failure is one sentence.
  static Result<Network*> of_process();
  /// Null: none is open.
  static Network* opened();

  const tutti_network_ops& ops() const { return *plugin_->ops<tutti_network_ops>(); }
  void* self() const { return plugin_->self(); }
  bool has(uint64_t capability) const { return (plugin_->capabilities() & capability) != 0; }
  /// As the configuration calls it: "socket", "nccl:/opt/x.so".
  const std::string& name() const { return name_; }
  const std::vector<Device>& devices() const { return devices_; }
  /// kInvalidArgument: there is no such device.
  Result<const Device*> device(int index) const;

  /// Held around each [setup] entry: NCCL calls from several threads.
  [[nodiscard]] std::unique_lock<std::mutex> lock_setup() const { return std::unique_lock(setup_mutex_); }
  /// Why the plugin's last call of this thread failed. `doing`: "cannot listen".
  Status failure(std::string_view doing, int32_t code) const;

 private:
  Network(std::shared_ptr<plugin::Plugin> plugin, std::string name)
      : plugin_(std::move(plugin)), name_(std::move(name)) {}
  static Result<std::unique_ptr<Network>> open_first(Settings& settings);
  static Result<std::unique_ptr<Network>> open(const std::string& named, Settings& settings);
  static Result<std::unique_ptr<Network>> start(Settings& settings);
  Status list_devices(uint32_t most_receives);
  Status describe(void* context, uint32_t count, uint32_t most_receives);
  std::string description() const;

  std::shared_ptr<plugin::Plugin> plugin_;
  const std::string name_;
  std::vector<Device> devices_;
  mutable std::mutex setup_mutex_;
};

}  // namespace tutti::nccl_net
