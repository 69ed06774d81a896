// SPDX-License-Identifier: Apache-2.0
// The connections of this rank: shared memory to ranks of its host, a network to all remaining ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/net.h"
#include "transport/shm.h"

namespace tutti::backend {

/// Setup by one thread; connections by one thread at a time.
class Fabric {
 public:
  Fabric(std::unique_ptr<transport::Shm> shm, std::unique_ptr<transport::Net> net, std::string network_name,
         transport::KeySpace shm_keys, transport::KeySpace net_keys, bool force_network);
  ~Fabric();

  tutti_connection* sender(const transport::Key& key);
  tutti_connection* receiver(const transport::Key& key);

  bool uses_shm(uint32_t peer) const { return !force_network_ && shm_->is_local(peer); }
  transport::Shm& shm() { return *shm_; }
  /// Wakes the sleeping thread of a call of this rank. Any thread.
  void ring();
  /// Returns true when sent data has left this process, or `failed()`; false if some was still there after `limit`.
  bool flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed);
  transport::Net* net() { return net_.get(); }
  /// The network's connections with a peer, see transport::Net::describe(). Empty: there are none. Any thread.
  std::string describe(std::optional<uint32_t> peer) const { return net_ == nullptr ? "" : net_->describe(peer); }
  const std::string& network_name() const { return network_name_; }

  /// The payload limit for slices of all ranks, for the kinds of links (bits 1 << TUTTI_LINK_*) of the communicator.
  uint64_t payload_bytes(uint32_t protocol, uint32_t links) const;
  /// Messages of any length that certainly fit the shortest connection, and the number of them that one chunk may fill.
  uint32_t message_count(uint32_t protocol, uint32_t links) const;
  uint32_t chunk_slots(uint32_t protocol, uint32_t links) const;

 private:
  template <class Get>
  auto least(uint32_t protocol, uint32_t links, Get&& get) const;

  std::unique_ptr<transport::Shm> shm_;
  std::unique_ptr<transport::Net> net_;
  std::string network_name_;
  transport::KeySpace shm_keys_;
  transport::KeySpace net_keys_;
  bool force_network_;
};

}  // namespace tutti::backend
