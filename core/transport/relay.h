// SPDX-License-Identifier: Apache-2.0
// The connection between a CTA of this rank's GPU and the same CTA of a GPU on a different host, for protocols whose
// GPUs signal each message (line_relay.h: for flags in the data).
//
// The GPU fills slots and reads slots. A relay is a task of the progress engine. It posts sends from the slots that the
// GPU has filled, and receives into the slots that the GPU is done with. The bytes of a slice are never copied on the
// host. Slots lie in pinned memory of the host, or in memory of a GPU if the network registers it ("direct").
//
// Messages of the network, by tag:
// - kSignalTag: a Record without a slice. It says which messages the sender's GPU is done with.
// - kSliceTag + slot: a slice. In pinned memory the Record follows the slice in the same message.
// - kRecordTag + slot: the Record of a slice, if one of the two GPUs has direct slots.
// A receiver has a receive posted for each slot that is free. A sender's GPU fills a slot only after it was told that
// the slot is free, so no message waits for a receive.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transport/relay_task.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// Both directions between one CTA of this rank's GPU and its counterpart at a peer.
/// Threads: as RelayTask.
class Relay : public RelayTask {
 public:
  /// Describes a slice, or is a done signal without a slice.
  struct Record {
    uint64_t step;    ///< position among the slices, or among the done signals, of this direction, from 0
    uint64_t bytes;   ///< length of the slice; 0: a done signal
    uint32_t number;  ///< number of the message that the slice is
    uint32_t done;    ///< the sender's GPU is done with messages before this number
  };
  static_assert(sizeof(Record) == 24);
  /// Bytes that a slot has behind its longest slice.
  static constexpr uint64_t kRecordRoom = 512;
  static constexpr uint32_t kSignalTag = 0;
  static constexpr uint32_t kSliceTag = 1;
  static constexpr uint32_t kRecordTag = 1u << 16;

  struct Options {
    Key key;
    tutti_slot_layout layout{};   ///< slot_stride includes kRecordRoom
    MessageMemory to;             ///< slots that the GPU fills, as the network accesses them
    MessageMemory from;           ///< slots that the GPU reads
    tutti_cuda_mailbox* at{};     ///< mailbox in which the GPU signals the peer; memory of the host
    tutti_cuda_mailbox* of{};     ///< mailbox in which the GPU is signaled
    const uint64_t* lengths{};    ///< by slot, see tutti_cuda_link
    bool splits = false;          ///< records are messages of their own; equal at both ends
    bool flushes = false;         ///< `from` needs a flush after each receive
    bool groups = false;          ///< one request receives a slice and its record
    std::shared_ptr<void> owner;  ///< owner of all this memory
  };
  /// Requests that a connection needs at once.
  static uint32_t requests(uint32_t slots, bool splits, bool groups) {
    return slots * (splits && !groups ? 2 : 1) + kSignals;
  }

  Relay(const Net& net, Options options);
  ~Relay() override { close(); }

 private:
  static constexpr uint32_t kSignals = 2;
  /// A slot that the GPU fills.
  struct Outgoing {
    void* slice = nullptr;  // requests
    void* record = nullptr;
    bool record_sent = false;  // its slice is still to be sent
  };
  /// A slot that the GPU reads.
  struct Incoming {
    enum class State { kBusy, kPosted, kArrived, kFlushing };
    State state = State::kBusy;  // no receive is posted
    void* slice = nullptr;       // requests
    void* record = nullptr;
    void* flush = nullptr;
    Record arrived{};
    uint64_t bytes = 0;   // length of the slice that arrived
    uint32_t number = 0;  // number of the last message, if `used`
    bool used = false;
  };

  // Sending.
  Status open_out() override;
  Result<bool> send() override;
  bool all_sent() const override;
  Result<bool> complete_sends();
  Result<bool> send_slice(uint32_t number, uint64_t bytes, uint32_t done);
  Result<bool> send_signal(uint32_t done);
  // Receiving.
  Status open_in() override;
  Result<bool> receive() override;
  Result<bool> take_signals();
  Result<bool> post(uint32_t slot, uint32_t done);
  Result<bool> take(uint32_t slot, uint32_t done);
  Result<bool> deliver(uint32_t slot);
  Status check(const Record& record, uint64_t bytes, uint32_t slot, uint32_t done) const;

  uint32_t slot_of(uint32_t number) const { return number & (options_.layout.slot_count - 1); }
  uint8_t* at(const MessageMemory& slots, uint32_t slot) const {
    return static_cast<uint8_t*>(slots.address) + slot * options_.layout.slot_stride;
  }

  Options options_;
  // Records and signals of both directions: registered memory of the host.
  std::vector<Record> out_records_, in_records_;  // slots first, then signals

  void* to_registration_ = nullptr;
  void* out_registration_ = nullptr;
  std::vector<Outgoing> outgoing_;
  void* signal_ = nullptr;
  uint32_t sent_ = 0;  // messages before this number have been sent, or are none
  uint32_t told_ = 0;  // the last `done` that was sent
  uint64_t slice_step_ = 0;
  uint64_t signal_step_ = 0;

  void* from_registration_ = nullptr;
  void* in_registration_ = nullptr;
  std::vector<Incoming> incoming_;
  std::array<void*, kSignals> signals_{};
  uint64_t next_slice_ = 0;
  uint64_t next_signal_ = 0;
};

}  // namespace tutti::transport
