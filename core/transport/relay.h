// SPDX-License-Identifier: Apache-2.0
// What stands between GPUs of different hosts: each sees slots and mailboxes in memory of its own host, and a task of
// the progress engine at either side carries what is new there over a network connection.
#pragma once

#include <atomic>
#include <memory>

#include "progress/engine.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// Both directions between one CTA of this rank's GPU and its like at a peer. A message of the network carries one
/// slot, or only how many messages the GPU is done with.
///
/// The GPU says which messages are there, but not how long they are: as many bytes travel as the longest slice so far
/// has had. Numbers that no message had are taken for messages as well: their slots are free at both ends, or a message
/// with a higher number could not have been sent.
class Relay : public progress::Task {
 public:
  /// Network slots carry this much more than those of GPUs.
  static constexpr uint64_t kHeaderBytes = 64;

  /// As the host sees them. `to` and `from` begin with slot 0 of the CTA; either may come later than the relay.
  struct Memory {
    std::atomic<uint8_t*> to = nullptr;    ///< slots that the GPU fills
    std::atomic<uint8_t*> from = nullptr;  ///< slots that it reads
    tutti_cuda_mailbox* at = nullptr;      ///< where it tells the peer
    tutti_cuda_mailbox* of = nullptr;      ///< where it is told
    std::shared_ptr<void> owner;           ///< of all of it
  };

  /// `longest`: bytes of a slice, raised before a call with longer ones is launched.
  Relay(const tutti_slot_layout& layout, tutti_connection* out, tutti_connection* in,
        std::shared_ptr<const std::atomic<uint64_t>> longest);
  /// All but slots must be there before the engine gets the relay.
  Memory& memory() { return memory_; }
  Result<bool> progress() override;
  bool idle() const override;
  bool polls() const override { return true; }

 private:
  struct Header {
    uint32_t number;
    uint32_t has_slot;
    uint32_t done;  ///< messages that the sender of this is done with
    uint32_t reserved;
    uint64_t bytes;
  };
  bool send();
  Result<bool> receive();
  bool put(const Header& header, const uint8_t* slot);
  uint64_t place(uint32_t number) const { return (number & (layout_.slot_count - 1)) * layout_.slot_stride; }

  tutti_slot_layout layout_;
  tutti_connection* out_;
  tutti_connection* in_;
  std::shared_ptr<const std::atomic<uint64_t>> longest_;
  Memory memory_;
  uint32_t sent_ = 0;  // messages before this number have been sent
  uint32_t told_ = 0;  // the last `done` that was sent
};

}  // namespace tutti::transport
