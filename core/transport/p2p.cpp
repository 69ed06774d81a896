// SPDX-License-Identifier: Apache-2.0
#include "transport/p2p.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::transport {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t value) {
  return (value + kPage - 1) / kPage * kPage;
}

/// Appends a lane's mailboxes and slots to an arena of `bytes` bytes.
P2pLane append(const P2p::Options& options, uint32_t ctas, uint64_t& bytes) {
  P2pLane lane;
  const uint64_t connections = uint64_t{ctas} * options.rank_count;
  lane.mailboxes_offset = bytes;
  bytes = round_up(bytes + connections * sizeof(tutti_cuda_mailbox));
  lane.slots_offset = bytes;
  bytes = round_up(bytes + connections * options.layout.slot_count * options.layout.slot_stride);
  return lane;
}

}  // namespace

Result<P2p> P2p::create(const Options& options, int device, bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  P2p p2p;
  p2p.options_ = options;
  uint64_t bytes = 0;
  p2p.collectives_ = append(options, options.collective_ctas, bytes);
  p2p.messages_ = append(options, options.message_ctas, bytes);
  TUTTI_ASSIGN(p2p.arena_, cuda::DeviceMemory::create(device, bytes));
  const size_t tracks = options.collective_ctas + size_t{2} * options.message_ctas * options.rank_count;
  TUTTI_ASSIGN(p2p.tracks_, cuda::DeviceMemory::create(device, tracks * sizeof(tutti_cuda_track)));
  p2p.collectives_.tracks = reinterpret_cast<tutti_cuda_track*>(p2p.tracks_.data());
  p2p.messages_.tracks = p2p.collectives_.tracks + options.collective_ctas;

  TUTTI_ASSIGN(const cuda::MemoryAddress mine, cuda::export_memory(p2p.arena_, device));
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), deadline));
  p2p.peers_.resize(options.rank_count);
  for (uint32_t rank = 0; rank < options.rank_count; ++rank) {
    if (rank == options.rank) continue;
    cuda::MemoryAddress address;
    std::memcpy(&address, all[rank].data(), std::min(all[rank].size(), sizeof address));
    auto peer = cuda::PeerMemory::import(address, device);
    if (!peer.ok()) return peer.status().with_context(fmt::format("memory of rank {}'s GPU", rank));
    p2p.peers_[rank] = *std::move(peer);
  }
  return p2p;
}

void P2p::describe(const P2pLane& lane, tutti_cuda_launch& launch) const {
  launch.rank = options_.rank;
  launch.rank_count = options_.rank_count;
  launch.slot_count = options_.layout.slot_count;
  launch.slot_stride = options_.layout.slot_stride;
  launch.slots_offset = lane.slots_offset;
  launch.mailboxes_offset = lane.mailboxes_offset;
  launch.tracks = lane.tracks;
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    launch.arenas[rank] = rank == options_.rank ? arena_.data() : peers_[rank].data();
  }
}

}  // namespace tutti::transport
