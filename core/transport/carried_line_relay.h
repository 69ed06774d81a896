// SPDX-License-Identifier: Apache-2.0
// The connection between a CTA of this rank's GPU and the same CTA of a GPU on a different host, for protocols with
// flags in the data, over connections that fail over or whose messages have checksums (slot_carrier.h).
//
// In contrast to LineRelay (line_relay.h), bundles of lines lie in slots of the network connection.
#pragma once

#include <memory>

#include "progress/engine.h"
#include "transport/connection.h"
#include "transport/gpu_signals.h"
#include "transport/line_ends.h"
#include "transport/slot_carrier.h"

namespace tutti::transport {

/// Both directions between one CTA of this rank's GPU and its counterpart at a peer.
/// Part of a CarriedTask, which moves the connections, too.
class CarriedLineRelay : public progress::Task {
 public:
  struct Options {
    Key key;
    tutti_slot_layout layout{};  ///< layout of the GPU's slots
    uint8_t* to{};               ///< slots that the GPU fills; memory of the host
    uint8_t* from{};             ///< slots that the GPU reads; memory of the host
    tutti_cuda_mailbox* at{};    ///< as in GpuSignals
    tutti_cuda_mailbox* of{};
    tutti_connection* out{};      ///< to the peer; outlives the relay
    tutti_connection* in{};       ///< from the peer; outlives the relay
    std::shared_ptr<void> owner;  ///< owner of the slots and mailboxes
  };
  explicit CarriedLineRelay(Options options);
  Result<bool> progress() override;
  bool idle() const override;

 private:
  /// Begins each message. The data of the lines follows.
  struct Header {
    LineEnds::Run run;  ///< no lines: only `done` counts
    uint32_t done;      ///< the sender's GPU is done with messages before this number
  };
  static_assert(sizeof(Header) == 16);

  bool send();
  bool send_lines(uint32_t index);
  bool tell_done();
  void post(std::span<uint8_t> room, const LineEnds::Run& run);
  Status take(std::span<const uint8_t> message);

  const Options options_;
  GpuSignals gpu_;
  SlotCarrier carrier_;
  LineEnds lines_;
  uint32_t told_ = 0;         // the last `done` that was sent
  bool answers_ = false;      // lines have been sent since `told_` changed
  uint32_t held_rounds_ = 0;  // rounds since a `done` waits to be sent
};

}  // namespace tutti::transport
