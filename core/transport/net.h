// SPDX-License-Identifier: Apache-2.0
// The transport between hosts: slots in memory of this process, moved by a network plugin and the progress engine.
//
// A connection of the network is made when it is first used, in the background: the sender connects to the receiver's
// listener and says in its first message (NetHello) who it is. Executors never see any of that; they fill and free
// slots.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "progress/engine.h"
#include "transport/connection.h"
#include "tutti/plugin/network.h"

namespace tutti::transport {

class AcceptTask;
class SendTask;
class ReceiveTask;

/// One rank's end of the network. Setup by one thread; afterwards sender() and receiver() by one thread at a time.
class Net {
 public:
  struct Options {
    const tutti_network_ops* ops = nullptr;
    void* plugin = nullptr;  ///< `self` of the plugin
    uint64_t capabilities = 0;
    std::string name;           ///< for messages: "socket"
    uint64_t communicator = 0;  ///< the same random number on all ranks; a stray connection does not know it
    uint32_t rank = 0;
    KeySpace keys;
    tutti_bell* bell = nullptr;                   ///< where the executor sleeps
    std::function<void(Status)> on_failure;       ///< the engine's, see progress::Engine
    std::function<bool(uint32_t rank)> has_left;  ///< and needs no more data; null: not known of any rank
    std::function<std::string()> last_failure;    ///< why the plugin's last call in this thread failed
  };
  static Result<std::unique_ptr<Net>> create(Options options);
  /// Closes all connections at once; call engine().flush() before to let sent data out.
  ~Net();

  /// A device in use: the fastest that can register host memory and carry a slot, and those at least half as fast.
  struct Device {
    uint32_t index = 0;  ///< in the plugin's list
    tutti_net_properties properties{};
    void* listener = nullptr;
  };
  /// Fastest first; never empty.
  const std::vector<Device>& devices() const { return devices_; }

  /// Where a rank listens on one of its devices.
  struct Door {
    uint32_t device = 0;
    tutti_net_handle handle{};
  };
  /// This rank's doors, for the other ranks; plain data, one per device in use.
  const std::vector<Door>& doors() const { return doors_; }
  /// The doors of all ranks, by rank.
  void set_peers(std::vector<std::vector<Door>> doors) { peers_ = std::move(doors); }

  tutti_connection* sender(const Key& key);
  tutti_connection* receiver(const Key& key);
  progress::Engine& engine() { return *engine_; }

  /// What the tasks share.
  const Options& options() const { return options_; }
  void* context() const { return context_; }
  Status failure(std::string_view doing, uint32_t peer, int32_t code) const;

 private:
  explicit Net(Options options) : options_(std::move(options)) {}
  Status choose_devices();
  Status listen();
  uint32_t own_device(uint32_t wanted) const;
  const tutti_net_handle& door_of(uint32_t peer, uint32_t wanted) const;

  Options options_;
  void* context_ = nullptr;
  std::vector<Device> devices_;
  std::vector<Door> doors_;
  std::vector<std::vector<Door>> peers_;
  std::shared_ptr<AcceptTask> acceptor_;
  std::vector<std::shared_ptr<SendTask>> senders_;       // by (peer, key), null until used
  std::vector<std::shared_ptr<ReceiveTask>> receivers_;  // likewise
  std::unique_ptr<progress::Engine> engine_;             // last: stops before what its tasks use goes away
};

}  // namespace tutti::transport
