// SPDX-License-Identifier: Apache-2.0
// A loaded file with an NCCL network plugin.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapter.h"
#include "nccl_plugins/log.h"
#include "tutti/status.h"

namespace tutti::net_nccl {

using nccl_plugins::LogScope;
using nccl_plugins::Sink;

/// Threads: any. All users of a file in this process share one object, because the plugin's own state is one per
/// process. The file stays loaded: threads of the plugin may run in it.
class Library {
 public:
  /// `named`: a path, a file name "lib....so", or NAME for libnccl-net-NAME.so.
  static Result<std::shared_ptr<Library>> load(const std::string& named);

  explicit Library(std::string file, std::unique_ptr<Adapter> adapter)
      : file_(std::move(file)), adapter_(std::move(adapter)) {}

  Adapter& adapter() { return *adapter_; }
  /// "'IB' (/opt/x/libnccl-net-x.so, ncclNetPlugin_v9)".
  std::string place() const;

  /// Begins a communicator, and lists the devices. `context` stays null before version 11.
  Status begin(const Sink& sink, uint64_t communicator, void** context, std::vector<Device>& devices);
  void end(const Sink& sink, void* context);

  /// The failure of an entry, with the latest warning of the plugin. `doing`: "connect of device 'eth0'".
  Status failure(const std::string& doing, int nccl_code) const;
  /// The same for an entry that moves data. A broken connection is often reported as a system error.
  Status lost(const std::string& doing, int nccl_code) const;

 private:
  Status list(std::vector<Device>& devices);

  const std::string file_;
  const std::unique_ptr<Adapter> adapter_;
  std::mutex mutex_;  // NCCL calls init, devices and getProperties of one process one after the other
  bool is_initialised_ = false;
};

}  // namespace tutti::net_nccl
