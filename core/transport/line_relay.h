// SPDX-License-Identifier: Apache-2.0
// The connection between a CTA of this rank's GPU and the same CTA of a GPU on a different host, for protocols with
// flags in the data (TUTTI_FLAGS_PAIRS of tutti/plugin/protocol.h).
//
// The GPU signals nothing: its stores of lines are data and announcement at once. The relay polls the flags in the
// slots that the GPU fills. It sends the data of lines that have come, without flags, as one message of the network: a
// *bundle*. It stores a bundle that arrives, with flags, into a slot that the GPU polls. So a small message costs one
// message of the network, and no signal and no fence of a GPU.
//
// Slots lie in pinned memory of the host. Bundles lie in memory of the relay, so the network registers no slots: a
// store of a network device might split the 8 bytes that data and flag share.
//
// Receives are posted without waiting for the GPU. A sender's GPU fills a slot only after it was told that the slot is
// free, so a bundle that arrives always has a slot.
#pragma once

#include <memory>
#include <vector>

#include "transport/line_ends.h"
#include "transport/relay_task.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// Both directions between one CTA of this rank's GPU and its counterpart at a peer.
/// Threads: as RelayTask.
class LineRelay : public RelayTask {
 public:
  /// Begins each message of the network. The data of the lines follows.
  struct Header {
    uint64_t step;    ///< position among the messages of this direction, from 0
    uint32_t number;  ///< of the GPU's message to which the lines belong
    uint32_t first;   ///< the first line
    uint32_t lines;   ///< 0: only `done` counts
    uint32_t done;    ///< the sender's GPU is done with messages before this number
  };
  static_assert(sizeof(Header) == 24);
  static constexpr uint32_t kTag = 1;

  struct Options {
    Key key;
    tutti_slot_layout layout{};
    uint8_t* to{};             ///< slots that the GPU fills; memory of the host
    uint8_t* from{};           ///< slots that the GPU reads; memory of the host
    tutti_cuda_mailbox* at{};  ///< as in RelayTask
    tutti_cuda_mailbox* of{};
    std::shared_ptr<void> owner;  ///< owner of all this memory
  };
  LineRelay(const Net& net, Options options);
  ~LineRelay() override { close(); }
  /// Bytes of a message of the network, at most.
  static uint64_t message_bytes(const tutti_slot_layout& layout) {
    return sizeof(Header) + LineEnds::lines_of(layout) * LineSlot::kDataBytes;
  }
  /// Requests that a connection needs at once.
  static constexpr uint32_t kRequests = 8;

 private:
  // Sending.
  Status open_out() override;
  Result<bool> send() override;
  bool all_sent() const override;
  Result<bool> complete_sends();
  Result<bool> send_lines(uint32_t index);
  /// Sends the message in the next buffer, whose header lacks `step` and `done`. False: the network takes no more.
  Result<bool> post_bundle(const Header& header);
  /// Whether the next buffer is free. Sends may be done in any order.
  bool has_buffer() const { return sends_[posted_ % kRequests] == nullptr; }

  // Receiving.
  Status open_in() override;
  Result<bool> receive() override;
  Status deliver(const uint8_t* message, uint64_t bytes);
  static LineEnds::Run run_of(const Header& header) { return {header.number, header.first, header.lines}; }
  Status check(const Header& header, uint64_t bytes) const;

  uint8_t* message(std::vector<uint64_t>& messages, uint64_t index) const {
    return reinterpret_cast<uint8_t*>(messages.data()) + index % kRequests * message_bytes(options_.layout);
  }

  const Options options_;
  LineEnds lines_;

  std::vector<uint64_t> out_messages_;  // registered, as in_messages_
  void* out_registration_ = nullptr;
  std::vector<void*> sends_;  // requests, by buffer; null: the buffer is free
  uint32_t under_way_ = 0;    // sends that are not done
  uint64_t posted_ = 0;       // messages that have been sent
  uint32_t told_ = 0;         // the last `done` that was sent
  bool answers_ = false;      // bundles have been sent since `told_` changed
  uint32_t held_rounds_ = 0;  // rounds since a `done` waits to be sent

  std::vector<uint64_t> in_messages_;
  void* in_registration_ = nullptr;
  std::vector<void*> receives_;  // requests, by buffer
  uint64_t expected_ = 0;        // messages that have been received
  uint64_t awaited_ = 0;         // messages before this one have a receive
};

}  // namespace tutti::transport
