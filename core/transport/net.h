// SPDX-License-Identifier: Apache-2.0
// The transport between hosts: slots in memory of this process, moved by a network plugin and the progress engine.
//
// A connection of the network is made when it is first used, in the background: the sender connects to the receiver's
// listener and identifies itself in its first message (NetHello). Executors only fill and free slots.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "progress/engine.h"
#include "transport/connection.h"
#include "transport/incoming.h"
#include "tutti/plugin/network.h"

namespace tutti::transport {

class AcceptTask;
class Awaiter;
class CheckedNetwork;
class Dial;
class Failover;
class LinkState;
class Receipts;
class Rejoiner;
class SlotTask;
enum class Purpose : uint32_t;
struct Introduction;
struct Route;

/// One rank's end of the network. Setup by one thread; afterwards sender() and receiver() by one thread at a time.
class Net {
 public:
  /// The state of a rank, as far as this process knows it.
  struct Standing {
    bool left = false;     ///< it left in good order and makes no further call
    bool unheard = false;  ///< the hub has closed: the rank's departure cannot be reported any more
    bool awaited = false;  ///< a call of this rank waits for it
  };
  struct Options {
    const tutti_network_ops* ops = nullptr;
    void* plugin = nullptr;  ///< `self` of the plugin
    uint64_t capabilities = 0;
    std::string name;           ///< for messages: "socket"
    uint64_t communicator = 0;  ///< the same random number on all ranks; a stray connection does not know it
    uint32_t rank = 0;
    KeySpace keys;
    tutti_bell* bell = nullptr;                       ///< bell on which the executor sleeps
    std::function<void(Status)> on_failure;           ///< the engine's, see progress::Engine
    std::function<Standing(uint32_t rank)> standing;  ///< null: every rank is there
    std::shared_ptr<Incoming> incoming;               ///< of all networks of the rank; null: of this network alone
    bool serves_left = false;                         ///< a rank that left may still need data: its kernels run
    std::vector<std::string> hosts;                   ///< names by rank; empty: one rank on each host
    std::chrono::milliseconds break_grace{2000};      ///< time in which the hub may report why a connection broke
    std::shared_ptr<progress::Engine> engine;         ///< the engine of all networks of the rank; null: one of its own
    uint32_t polling_threads = 1;                     ///< threads of its own engine, see progress::Engine
    std::function<std::string()> last_failure;        ///< why the plugin's last call in this thread failed
    std::chrono::nanoseconds call_limit{};            ///< deadline of an entry that does not return; 0: none
    bool check_plugins = false;                       ///< check.plugins: hold the plugin to its contract
    bool check_data = false;                          ///< check.data: a checksum in each message of slots
    std::shared_ptr<Failover> failover;  ///< the record of all networks of the rank; null: breaks are failures
  };
  static Result<std::unique_ptr<Net>> create(Options options);
  /// Stops the engine, and closes all connections at once; call engine().flush() before to let sent data out.
  ~Net();

  /// A device in use. Devices in use are the fastest device that can register host memory and carry a slot, and all
  /// devices that are at least half as fast.
  struct Device {
    uint32_t index = 0;  ///< in the plugin's list
    tutti_net_properties properties{};
    void* listener = nullptr;
    mutable uint32_t connections = 0;  ///< connections of tasks
  };
  /// Fastest first; never empty.
  const std::vector<Device>& devices() const { return devices_; }
  /// The indices of the devices that are as fast as the fastest. Ranks of a host share them, unless a key names a
  /// device.
  std::vector<uint32_t> fastest_devices() const;
  /// Before the first connection: the machine of each rank, and of each machine the own device of each of its ranks, in
  /// ascending order of ranks. A machine without devices is as if this was not called. The same on all ranks.
  void share_devices(std::vector<uint32_t> machine_of_rank, std::vector<std::vector<uint32_t>> own_devices);

  /// The listener of a rank on one of its devices.
  struct Endpoint {
    uint32_t device = 0;
    std::array<char, 28> device_name{};  ///< ends with a zero
    tutti_net_handle handle{};
  };
  /// The lowest limit of a message's bytes of the devices in use.
  uint64_t max_message_bytes() const;
  /// Whether all devices in use register memory of a kind, TUTTI_MEMORY_HOST or TUTTI_MEMORY_CUDA.
  bool registers(uint32_t memory) const;
  /// This rank's endpoints, for the other ranks; plain data, one per device in use.
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  /// The endpoints of all ranks, by rank. From now on the engine serves this network, and connections are accepted in
  /// the background. `channels`: of the keys, the same on all ranks; 0: those of the options.
  void set_peers(std::vector<std::vector<Endpoint>> endpoints, uint32_t channels = 0);

  /// Slots in memory of the host. The engine moves them.
  tutti_connection* sender(const Key& key);
  tutti_connection* receiver(const Key& key);
  /// The same for both directions. The caller adds the tasks to the engine, in a task of its own (carried_task.h). Once
  /// for each key, in place of sender() and receiver().
  struct Pair {
    std::shared_ptr<SlotTask> sender, receiver;
  };
  Pair pair(const Key& key);
  /// A connection of a kind other than slots in memory of the host: this rank's end, which sends.
  std::unique_ptr<Dial> dial(const Key& key) const;
  std::unique_ptr<Dial> dial(const Key& key, const Introduction& as) const;
  /// Its other end, which the peer dials.
  void expect(const Key& key, std::shared_ptr<Awaiter> awaiter);
  /// From now on, the connections of a peer for this purpose go to `rejoiner`. `home`: as in Introduction.
  void expect(const Key& key, Purpose purpose, uint32_t home, std::shared_ptr<Rejoiner> rejoiner) const;
  /// Looks for connections at once, until as many calls end the haste as began it. Otherwise it may take a moment.
  void hurry(bool begins) const;
  /// This rank makes no further call. Each connection on which it sends tells its receiver so, after all data. The end
  /// of the connection is then no loss for the receiver. engine().flush() waits for these last messages. Not with
  /// fail-over, whose receivers ask for the news of the hub. Any thread.
  void leave() { is_leaving_.store(true, std::memory_order_relaxed); }
  bool is_leaving() const { return is_leaving_.load(std::memory_order_relaxed); }
  /// Stops the engine and gives up all connections. Networks that fail over to each other are closed before one ends.
  void close();
  progress::Engine& engine() { return *engine_; }
  /// Whether all data goes through slots in memory of the host (sender(), receiver()): connections fail over, or
  /// messages have checksums.
  bool only_slots() const { return options_.failover != nullptr || options_.check_data; }
  /// Watches the entries of the plugin.
  progress::EntryWatch* watch() const { return watch_.get(); }

  /// The common data of the tasks.
  const Options& options() const { return options_; }
  /// The devices by which connections of a key are made.
  Route route(const Key& key) const;
  const std::vector<Endpoint>& endpoints_of(uint32_t rank) const { return peers_[rank]; }
  void* context() const { return context_; }
  uint32_t peer_count() const { return static_cast<uint32_t>(peers_.size()); }
  Standing standing(uint32_t rank) const { return options_.standing ? options_.standing(rank) : Standing{}; }
  /// "from rank 2 (host b, eth1) to rank 0 (host a, eth0)": the connection on which this rank sends, or receives.
  std::string ends(const Key& key, bool sends) const;
  /// "rank 0 (host a, eth0)": this rank and its fastest device.
  std::string own_place() const;
  /// "at rank 0 (host a, eth0)": of a connection that has not said yet where it belongs.
  std::string ends(uint32_t own_device) const;
  /// Held around each [setup] entry of the plugin once connections are made: several threads make them.
  std::unique_lock<std::mutex> lock_setup() const { return std::unique_lock(setup_mutex_); }
  /// Counts a connection that a task keeps. kUnsupported above the device's limit. With lock_setup() held.
  Status count_connection(uint32_t device) const;
  /// A connection that was counted has ended. Without lock_setup().
  void uncount_connection(uint32_t device) const;
  /// "network 'socket', from rank 0 (host a, eth0) to rank 1 (host b, eth0): connected; oldest of 2 outstanding
  /// requests: send of message 3": the connections with a peer, or, without a peer, the connections on which this rank
  /// has data to send. Empty: there are none. Any thread.
  std::string describe(std::optional<uint32_t> peer) const;
  void add(LinkState& state) const;
  void remove(LinkState& state) const;
  /// Why the plugin's last call failed. `doing`: "cannot connect".
  Status failure(std::string_view doing, int32_t code) const;
  /// With check.plugins: the rule that the last call of this thread broke, `where`: "on the connection from ...". Ok:
  /// it broke none.
  Status violation(std::string_view where) const;
  /// The first rule that any call broke, also where the failure of the call alone would change nothing. Any thread.
  Status contract() const;

 private:
  explicit Net(Options options);
  bool has_events() const { return (options_.capabilities & TUTTI_NET_CAP_EVENT_FD) != 0; }
  Status check_event_fd();
  Status choose_devices();
  Status listen();
  uint32_t own_device(const Key& key) const;
  /// The device of a rank for a peer, if a key names none.
  uint32_t shared_device(uint32_t rank, uint32_t peer) const;
  bool has_device(uint32_t index) const;
  const Endpoint& peer_endpoint(const Key& key) const;
  const Endpoint& endpoint_of(uint32_t rank, uint32_t wanted) const;
  size_t place_of(const Key& key) const { return key.peer * options_.keys.size() + options_.keys.index(key); }
  std::shared_ptr<Receipts> receipts_of(const Key& key);
  std::shared_ptr<SlotTask> make_sender(const Key& key);
  std::shared_ptr<SlotTask> make_receiver(const Key& key);
  std::string place(uint32_t rank, const Endpoint& endpoint) const;

  Options options_;
  std::unique_ptr<CheckedNetwork> checked_;  // null: the plugin is not checked
  mutable std::mutex violation_mutex_;       // guards violation_
  mutable Status violation_;
  mutable std::mutex setup_mutex_;
  std::unique_ptr<progress::EntryWatch> watch_;      // before all objects with marks
  std::unique_ptr<progress::EntryMark> setup_mark_;  // of the thread that creates and destroys this object
  void* context_ = nullptr;
  std::vector<Device> devices_;
  size_t fastest_ = 1;               // devices, at the begin of devices_, that are as fast as the first
  std::vector<uint32_t> positions_;  // by rank: the number of ranks before it on its host; empty: ranks share no device
  std::vector<uint32_t> machines_;   // by rank, with own_devices_
  std::vector<std::vector<uint32_t>> own_devices_;  // by machine and position; empty: not known
  std::vector<uint32_t> between_;                   // by two positions: the position whose devices join them
  std::vector<Endpoint> endpoints_;
  std::vector<std::vector<Endpoint>> peers_;
  mutable std::mutex states_mutex_;  // guards states_
  mutable std::vector<LinkState*> states_;
  std::shared_ptr<AcceptTask> acceptor_;
  std::vector<std::shared_ptr<SlotTask>> senders_;    // by (peer, key), null until used
  std::vector<std::shared_ptr<SlotTask>> receivers_;  // by key, as senders_
  std::vector<std::shared_ptr<Receipts>> receipts_;   // by key, as senders_; with fail-over
  std::atomic<bool> is_leaving_{false};               // relaxed: a task that sees it late tells it late
  std::shared_ptr<progress::Engine> engine_;
};

}  // namespace tutti::transport
