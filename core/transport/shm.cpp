// SPDX-License-Identifier: Apache-2.0
#include "transport/shm.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "progress/bell.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kBellBytes = 4096;  // the bell has a page of its own

/// Whether the kernel lets this process read the peer's memory, tried on the peer's token.
bool can_read(const Shm::Peer& peer) {
  uint64_t token = 0;
  iovec local{&token, sizeof token};
  iovec remote{reinterpret_cast<void*>(peer.token_address), sizeof token};
  return process_vm_readv(peer.address.process, &local, 1, &remote, 1, 0) == sizeof token &&
         token == peer.address.token;
}

}  // namespace

Shm::Shm(uint32_t rank, std::vector<uint32_t> local_ranks, KeySpace keys)
    : rank_(rank), local_ranks_(std::move(local_ranks)), keys_(std::move(keys)) {
  for (uint32_t index = 0; index < keys_.size(); ++index) {
    const auto& layout = keys_.protocols[index % keys_.protocols.size()];
    key_offsets_.push_back(sender_bytes_);
    sender_bytes_ += (connection_bytes(layout) + 4095) / 4096 * 4096;
  }
  peers_.resize(local_ranks_.size());
  peer_flags_.resize(local_ranks_.size());
  senders_.resize(local_ranks_.size() * keys_.size());
  receivers_.resize(local_ranks_.size() * keys_.size());
}

Result<std::unique_ptr<Shm>> Shm::create(uint32_t rank, std::vector<uint32_t> local_ranks, KeySpace keys) {
  std::unique_ptr<Shm> shm(new Shm(rank, std::move(local_ranks), std::move(keys)));
  TUTTI_ASSIGN(shm->own_, memory::Arena::create(kBellBytes + shm->local_ranks_.size() * shm->sender_bytes_));
  progress::init_bell(shm->bell());
  return shm;
}

Status Shm::attach(const std::vector<Peer>& peers, SingleCopy single_copy) {
  for (size_t i = 0; i < peers.size(); ++i) {
    if (local_ranks_[i] == rank_) continue;
    auto arena = memory::Arena::open(peers[i].address);
    if (!arena.ok()) return arena.status().with_context(fmt::format("rank {}", local_ranks_[i]));
    peers_[i] = *std::move(arena);
    if (single_copy == SingleCopy::kOff) continue;
    if (peers[i].address.process == getpid()) {
      peer_flags_[i] = TUTTI_CONNECTION_SHARED_SPACE;
      single_copy_ = "same process";
    } else if (single_copy == SingleCopy::kOn) {
      if (!can_read(peers[i])) {
        return Status(Code::kSystem,
                      fmt::format("shm.single_copy is on, but the kernel does not let this process read rank {} "
                                  "(process {}): {}; set it to auto, or allow ptrace between the ranks",
                                  local_ranks_[i], peers[i].address.process, std::strerror(errno)));
      }
      peer_flags_[i] = TUTTI_CONNECTION_REMOTE_READ;
      single_copy_ = "process_vm_readv";
    }
  }
  return {};
}

bool Shm::is_local(uint32_t rank) const {
  return std::find(local_ranks_.begin(), local_ranks_.end(), rank) != local_ranks_.end();
}

uint32_t Shm::local_index(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(local_ranks_.begin(), local_ranks_.end(), rank) - local_ranks_.begin());
}

uint64_t Shm::offset(uint32_t sender_index, const Key& key) const {
  return kBellBytes + sender_index * sender_bytes_ + key_offsets_[keys_.index(key)];
}

tutti_connection* Shm::connection(std::vector<std::unique_ptr<tutti_connection>>& all, const Key& key, uint8_t* base,
                                  uint64_t place, tutti_bell* peer_bell) {
  const uint32_t peer = local_index(key.peer);
  auto& slot = all[peer * keys_.size() + keys_.index(key)];
  if (slot == nullptr) {
    slot = std::make_unique<tutti_connection>(connection_at(base + place, keys_.protocols[key.protocol], key.peer));
    slot->peer_bell = peer_bell;
    slot->flags = peer_flags_[peer];
    slot->peer_process = peers_[peer].address().process;
  }
  return slot.get();
}

tutti_connection* Shm::sender(const Key& key) {
  // The slots lie with the receiver, in the part of this rank.
  uint8_t* base = peers_[local_index(key.peer)].bytes().data();
  return connection(senders_, key, base, offset(local_index(rank_), key), reinterpret_cast<tutti_bell*>(base));
}

tutti_connection* Shm::receiver(const Key& key) {
  auto* peer_bell = reinterpret_cast<tutti_bell*>(peers_[local_index(key.peer)].bytes().data());
  return connection(receivers_, key, own_.bytes().data(), offset(local_index(key.peer), key), peer_bell);
}

}  // namespace tutti::transport
