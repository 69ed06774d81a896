// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/large_programs.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/pack.h"

namespace tutti::backend {
namespace {

/// The offset of an array of `count` elements of `size` bytes, at the end of a block of `bytes`, which grows.
size_t append(size_t count, size_t size, size_t& bytes) {
  const size_t at = bytes;
  bytes += (count * size + 7) / 8 * 8;
  return at;
}

template <class Value>
void put(std::span<const Value> values, size_t at, std::vector<std::byte>& block) {
  if (!values.empty()) std::memcpy(block.data() + at, values.data(), values.size_bytes());
}

}  // namespace

LargePrograms::LargePrograms(std::span<const program::Program> programs, uint32_t rank, uint32_t rank_count)
    : programs_(programs), rank_(rank) {
  append(programs.size(), sizeof(tutti_cuda_large_program), bytes_);
  for (const program::Program& program : programs) {
    const auto& connections = connections_.emplace_back(program::ConnectionNumbers::of(program, rank_count));
    Offsets& offsets = offsets_.emplace_back();
    // Kernels load the first step in advance, whether or not there is any.
    offsets.steps = append(std::max<size_t>(program.steps.size(), 1), sizeof(tutti_cuda_large_step), bytes_);
    offsets.peers = append(program.peers.size(), sizeof(tutti_cuda_large_peer), bytes_);
    if (connections.are_ranks()) continue;
    offsets.links = append(connections.count(), sizeof(tutti_cuda_link), bytes_);
    offsets.ranks = append(connections.count() + 1, sizeof(uint32_t), bytes_);
  }
}

std::vector<std::byte> LargePrograms::encode(const void* at, std::span<const tutti_cuda_link> links,
                                             const tutti_cuda_link* row) const {
  const auto* const begin = static_cast<const std::byte*>(at);
  std::vector<std::byte> block(bytes_);
  for (size_t i = 0; i < programs_.size(); ++i) {
    const program::Program& program = programs_[i];
    const program::ConnectionNumbers& connections = connections_[i];
    const Offsets& offsets = offsets_[i];
    auto head = pack_head<tutti_cuda_large_program>(program);
    head.scratch_blocks = static_cast<uint16_t>(program::scratch_blocks(program.scratch_chunks, program.chunks));
    head.strand_count = static_cast<uint16_t>(program.strand_count);
    head.connection_count = connections.count();
    head.steps = reinterpret_cast<const tutti_cuda_large_step*>(begin + offsets.steps);
    head.peers = reinterpret_cast<const tutti_cuda_large_peer*>(begin + offsets.peers);
    head.links = row;
    std::vector<tutti_cuda_large_step> steps;
    for (const tutti_program_step& step : program.steps) steps.push_back(pack<tutti_cuda_large_step>(step));
    std::vector<tutti_cuda_large_peer> peers;
    for (const tutti_program_peer& peer : program.peers) {
      peers.push_back(pack<tutti_cuda_large_peer>(peer));
      peers.back().rank = static_cast<uint16_t>(connections.number_of(peer.rank));
    }
    put<tutti_cuda_large_step>(steps, offsets.steps, block);
    put<tutti_cuda_large_peer>(peers, offsets.peers, block);
    if (!connections.are_ranks()) {
      head.links = reinterpret_cast<const tutti_cuda_link*>(begin + offsets.links);
      head.ranks = reinterpret_cast<const uint32_t*>(begin + offsets.ranks);
      std::vector<tutti_cuda_link> own;
      for (const uint32_t rank : connections.ranks()) own.push_back(links[rank]);
      put<tutti_cuda_link>(own, offsets.links, block);
      put(connections.ranks(), offsets.ranks, block);
      put(std::span(&rank_, 1), offsets.ranks + connections.count() * sizeof rank_, block);
    }
    put<tutti_cuda_large_program>({&head, 1}, i * sizeof head, block);
  }
  return block;
}

}  // namespace tutti::backend
