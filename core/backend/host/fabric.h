// SPDX-License-Identifier: Apache-2.0
// The connections of this rank: shared memory to ranks of its host, networks to all remaining ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/net.h"
#include "transport/shm.h"

namespace tutti::backend {

/// Setup by one thread; connections by one thread at a time.
class Fabric {
 public:
  /// `nets`: the networks in order of preference, with one engine; empty: none.
  Fabric(std::unique_ptr<transport::Shm> shm, std::vector<std::unique_ptr<transport::Net>> nets,
         transport::KeySpace shm_keys, transport::KeySpace net_keys, bool force_network);
  ~Fabric();

  /// The networks of paths, by peer, in place of that of the call. Before the first connection.
  void set_paths(transport::Paths paths) { paths_ = std::move(paths); }
  const transport::Paths& paths() const { return paths_; }
  /// `network`: index of the network to a peer on a different host, if the path to the peer has none of its own.
  tutti_connection* sender(const transport::Key& key, uint32_t network);
  tutti_connection* receiver(const transport::Key& key, uint32_t network);

  bool uses_shm(uint32_t peer) const { return !force_network_ && shm_->is_local(peer); }
  transport::Shm& shm() { return *shm_; }
  /// Wakes the sleeping thread of a call of this rank. Any thread.
  void ring();
  /// Returns true when relays of a GPU have nothing to send, or `failed()`; false if they have after `limit`. Before
  /// flush().
  bool drain(std::chrono::nanoseconds limit, const std::function<bool()>& failed);
  /// Returns true when sent data has left this process, or `failed()`; false if some was still there after `limit`.
  bool flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed);
  const std::vector<std::unique_ptr<transport::Net>>& nets() const { return nets_; }
  /// Of all networks; null: there is none.
  progress::Engine* engine() { return nets_.empty() ? nullptr : &nets_.front()->engine(); }
  /// The networks' connections with a peer, see transport::Net::describe(). Empty: there are none, or the peer
  /// uses shared memory. Any thread.
  std::string describe(std::optional<uint32_t> peer) const;

  /// The payload limit for slices of all ranks, for the kinds of links (bits 1 << TUTTI_LINK_*) of the communicator.
  uint64_t payload_bytes(uint32_t protocol, uint32_t links) const;
  /// Messages of any length that certainly fit the shortest connection, and the number of them that one chunk may fill.
  uint32_t message_count(uint32_t protocol, uint32_t links) const;
  uint32_t chunk_slots(uint32_t protocol, uint32_t links) const;

 private:
  transport::Net& net_of(transport::Key& key, uint32_t network);
  template <class Get>
  auto least(uint32_t protocol, uint32_t links, Get&& get) const;

  std::unique_ptr<transport::Shm> shm_;
  std::vector<std::unique_ptr<transport::Net>> nets_;
  transport::KeySpace shm_keys_;
  transport::KeySpace net_keys_;
  bool force_network_;
  transport::Paths paths_;
};

}  // namespace tutti::backend
