// SPDX-License-Identifier: Apache-2.0
// The connection between a CTA of this rank's GPU and the same CTA of a GPU on a different host, for protocols whose
// GPUs signal each message, over connections that fail over or whose messages have checksums (slot_carrier.h).
//
// In contrast to Relay (relay.h), the process copies each slice: from the slot that the GPU filled into slots of the
// network connection, and at the peer from there into the slot that its GPU reads. A slice that is longer than a slot
// of the network connection goes in several parts. Parts arrive once and in order.
#pragma once

#include <memory>
#include <string>

#include "progress/engine.h"
#include "transport/connection.h"
#include "transport/gpu_signals.h"
#include "transport/slot_carrier.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// Both directions between one CTA of this rank's GPU and its counterpart at a peer.
/// Part of a CarriedTask, which moves the connections, too.
class CarriedRelay : public progress::Task {
 public:
  struct Options {
    Key key;
    tutti_slot_layout layout{};  ///< layout of the GPU's slots
    const uint8_t* to{};         ///< slots that the GPU fills; memory of the host
    uint8_t* from{};             ///< slots that the GPU reads; memory of the host
    tutti_cuda_mailbox* at{};    ///< as in GpuSignals
    tutti_cuda_mailbox* of{};
    const uint64_t* lengths{};    ///< by slot, see tutti_cuda_link
    tutti_connection* out{};      ///< to the peer; outlives the relay
    tutti_connection* in{};       ///< from the peer; outlives the relay
    std::shared_ptr<void> owner;  ///< owner of the slots, mailboxes and lengths
  };
  explicit CarriedRelay(Options options);
  Result<bool> progress() override;
  bool idle() const override;

 private:
  /// Begins each message. The bytes of a part follow.
  struct Header {
    uint64_t bytes;   ///< of the whole slice; 0: only `done` counts
    uint64_t offset;  ///< begin of the part in the slice
    uint32_t number;  ///< number of the message that the slice is
    uint32_t done;    ///< the sender's GPU is done with messages before this number
  };
  static_assert(sizeof(Header) == 24);

  bool send();
  bool send_slice(uint64_t bytes);
  bool post(const Header& header, const uint8_t* data, uint64_t bytes);
  Status take(std::span<const uint8_t> message);
  uint64_t offset_of(uint32_t number) const {
    return (number & (options_.layout.slot_count - 1)) * options_.layout.slot_stride;
  }

  const Options options_;
  GpuSignals gpu_;
  SlotCarrier carrier_;
  uint32_t sent_ = 0;        // messages before this number have been sent, or are none
  uint64_t sent_bytes_ = 0;  // of message `sent_`
  uint32_t told_ = 0;        // the last `done` that was sent
  Header coming_{};          // the latest part of the slice that comes
  uint64_t came_bytes_ = 0;  // of this slice
};

}  // namespace tutti::transport
