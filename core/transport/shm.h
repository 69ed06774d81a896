// SPDX-License-Identifier: Apache-2.0
// The transport between ranks of one host: slots in shared memory of the receiver.
#pragma once

#include <memory>
#include <vector>

#include "memory/arena.h"
#include "transport/connection.h"
#include "tutti/status.h"

namespace tutti::transport {

/// One rank's end of shared memory. Setup by one thread; afterwards sender() and receiver() by one thread at a time.
class Shm {
 public:
  /// Single copy: the buffers that a receiver may read instead of a slot. kAuto: buffers of ranks of its own process.
  /// kOn: buffers of other processes too, through the kernel.
  enum class SingleCopy { kOff, kAuto, kOn };

  /// Makes this rank's memory: room for connections from each rank in `local_ranks` (all ranks of this host, this one
  /// included).
  static Result<std::unique_ptr<Shm>> create(uint32_t rank, std::vector<uint32_t> local_ranks, KeySpace keys);

  const memory::ArenaAddress& address() const { return own_.address(); }
  const uint64_t* token_address() const { return own_.token_address(); }
  /// The bell on which this rank sleeps; peers ring it.
  tutti_bell& bell() { return *reinterpret_cast<tutti_bell*>(own_.bytes().data()); }

  /// The data of a local rank that attach needs.
  struct Peer {
    memory::ArenaAddress address;
    uint64_t token_address = 0;
  };
  /// Maps the memory of the local peers (in the order of `local_ranks`; the own entry is ignored).
  Status attach(const std::vector<Peer>& peers, SingleCopy single_copy);
  /// To be called once all ranks have attached: no further process can map this rank's memory.
  void seal() { own_.seal(); }

  bool is_local(uint32_t rank) const;
  /// The connection that this rank sends on, or receives on; made when first asked for.
  tutti_connection* sender(const Key& key);
  tutti_connection* receiver(const Key& key);

  /// Whether peers' buffers can be read without a copy into slots, in text for logs: "off",
  /// "same process", "process_vm_readv".
  const std::string& single_copy() const { return single_copy_; }

 private:
  Shm(uint32_t rank, std::vector<uint32_t> local_ranks, KeySpace keys);
  uint32_t local_index(uint32_t rank) const;
  uint64_t offset(uint32_t sender_index, const Key& key) const;
  tutti_connection* connection(std::vector<std::unique_ptr<tutti_connection>>& all, const Key& key, uint8_t* base,
                               uint64_t place, tutti_bell* peer_bell);

  uint32_t rank_;
  std::vector<uint32_t> local_ranks_;
  KeySpace keys_;
  std::vector<uint64_t> key_offsets_;  // offset of each key within one sender's part
  uint64_t sender_bytes_ = 0;
  memory::Arena own_;
  std::vector<memory::Arena> peers_;  // by local index
  std::vector<uint32_t> peer_flags_;  // TUTTI_CONNECTION_* by local index
  std::vector<std::unique_ptr<tutti_connection>> senders_, receivers_;
  std::string single_copy_ = "off";
};

}  // namespace tutti::transport
