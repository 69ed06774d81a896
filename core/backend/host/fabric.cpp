// SPDX-License-Identifier: Apache-2.0
#include "backend/host/fabric.h"

#include <algorithm>

#include "progress/bell.h"
#include "tutti/plugin/algorithm.h"

namespace tutti::backend {

Fabric::Fabric(std::unique_ptr<transport::Shm> shm, std::vector<std::unique_ptr<transport::Net>> nets,
               transport::KeySpace shm_keys, transport::KeySpace net_keys, bool force_network)
    : shm_(std::move(shm)),
      nets_(std::move(nets)),
      shm_keys_(std::move(shm_keys)),
      net_keys_(std::move(net_keys)),
      force_network_(force_network) {}

// The engine of the networks rings the bell in shared memory, so it goes first.
Fabric::~Fabric() {
  for (const auto& net : nets_) net->close();  // connections of one network may go over another
  nets_.clear();
}

/// The devices of a key are those of the call's network.
transport::Net& Fabric::net_of(transport::Key& key, uint32_t network) {
  const uint32_t of_path = transport::network_to(key.peer, network, paths_);
  if (of_path != network) key.device = key.peer_device = TUTTI_NO_NET;
  return *nets_[of_path];
}

tutti_connection* Fabric::sender(const transport::Key& asked, uint32_t network) {
  if (uses_shm(asked.peer)) return shm_->sender(asked);
  transport::Key key = asked;
  return net_of(key, network).sender(key);
}

tutti_connection* Fabric::receiver(const transport::Key& asked, uint32_t network) {
  if (uses_shm(asked.peer)) return shm_->receiver(asked);
  transport::Key key = asked;
  return net_of(key, network).receiver(key);
}

std::string Fabric::describe(std::optional<uint32_t> peer) const {
  if (peer && uses_shm(*peer)) return {};
  std::string text;
  for (const auto& net : nets_) {
    const std::string one = net->describe(peer);
    if (!one.empty()) text += (text.empty() ? "" : "; ") + one;
  }
  return text;
}

void Fabric::ring() {
  progress::ring(shm_->bell());
}

bool Fabric::drain(std::chrono::nanoseconds limit, const std::function<bool()>& failed) {
  if (nets_.empty() || failed()) return true;
  return engine()->flush(std::chrono::steady_clock::now() + limit, failed) || failed();
}

bool Fabric::flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed) {
  if (nets_.empty() || failed()) return true;
  for (const auto& net : nets_) net->leave();
  return drain(limit, failed);
}

template <class Get>
auto Fabric::least(uint32_t protocol, uint32_t links, Get&& get) const {
  const auto shm = get(shm_keys_.protocols[protocol]);
  const auto net = get(net_keys_.protocols[protocol]);
  if ((links & 1u << TUTTI_LINK_NETWORK) == 0) return shm;
  return (links & 1u << TUTTI_LINK_SHM) == 0 ? net : std::min(shm, net);
}

uint64_t Fabric::payload_bytes(uint32_t protocol, uint32_t links) const {
  return least(protocol, links, [](const tutti_slot_layout& layout) { return layout.slot_bytes; });
}

uint32_t Fabric::message_count(uint32_t protocol, uint32_t links) const {
  return least(protocol, links, [](const tutti_slot_layout& layout) { return transport::message_count(layout); });
}

uint32_t Fabric::chunk_slots(uint32_t protocol, uint32_t links) const {
  return least(protocol, links, [](const tutti_slot_layout& layout) { return layout.chunk_slots; });
}

}  // namespace tutti::backend
