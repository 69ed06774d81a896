// SPDX-License-Identifier: Apache-2.0
// RDMA devices, and the ports that the plugin offers as its devices.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "address.h"
#include "gid.h"
#include "owners.h"
#include "registration.h"
#include "settings.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// An open RDMA device: its protection domain and its registered memory. Threads: any.
class Device {
 public:
  /// kSystem with the reason of the system and the remedy.
  static Result<std::shared_ptr<Device>> open(ibv_device* device);

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const ibv_device_attr& attributes() const { return attributes_; }
  Registrations& registrations() { return *registrations_; }
  /// Path in sysfs; empty for a device without a place on the PCI bus.
  const std::string& pci_path() const { return pci_path_; }
  /// The network interfaces of the device.
  const std::vector<std::string>& interfaces() const { return interfaces_; }
  /// TUTTI_MEMORY_* bits that it can register.
  uint32_t memory() const { return memory_; }

  /// Reads the events that have come in and logs each as a sentence. Does not block.
  void read_events(const sdk::Host& host);
  /// The device reported that it has failed: nothing works on it any more.
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }  // partner: read_events
  /// How often the port has gone down, as far as events have been read.
  uint32_t downs(uint32_t port) const;
  /// "port 1 of mlx5_0 is DOWN" or, if the port is up, an empty text.
  std::string fault_of(uint32_t port) const;

 private:
  Device() = default;
  std::string name_;
  OpenDevice context_;
  ProtectionDomain domain_;
  ibv_device_attr attributes_{};
  std::string pci_path_;
  std::vector<std::string> interfaces_;
  uint32_t memory_ = 0;
  std::atomic<bool> failed_{false};
  static constexpr uint32_t kPorts = 4;
  std::array<std::atomic<uint32_t>, kPorts> downs_{};  // by port number; ports beyond share
  std::mutex events_;                                  // one thread reads events at a time
  std::unique_ptr<Registrations> registrations_;       // last: goes before the domain
};

/// A port in use.
struct Port {
  std::shared_ptr<Device> device;
  uint32_t number = 1;
  std::string name;  ///< "mlx5_0", or "mlx5_0:2" where the device has several ports
  ibv_port_attr attributes{};
  Gid gid;
  Interface exchange;  ///< interface for the exchange of queue pair numbers

  bool is_infiniband() const { return attributes.link_layer == IBV_LINK_LAYER_INFINIBAND; }
  /// GB/s in one direction; 0: unknown.
  double speed_gbs() const;
};

/// Whether the setting `devices` takes the port.
bool takes(const std::vector<std::string>& filters, const std::string& device, uint32_t port);

/// The active ports that the settings take. kUnsupported: this machine has none; the text gives the reason for each
/// device.
Result<std::vector<Port>> find_ports(const Settings& settings);

}  // namespace tutti::net_ib
