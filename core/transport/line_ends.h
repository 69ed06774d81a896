// SPDX-License-Identifier: Apache-2.0
// The slots of one connection of a GPU to a GPU on a different host, for protocols with flags in the data
// (TUTTI_FLAGS_PAIRS of tutti/plugin/protocol.h): the process takes lines from slots that the GPU fills, and puts lines
// into slots that the GPU reads.
//
// Lengths. The process does not know how long a message is, and need not know. If more lines of a message come after it
// took some, it takes them later. Lines of one message mostly come together: take() waits for a moment if fewer lines
// have come than the previous message had.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/line_slot.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// One thread at a time. The GPU loads and stores the slots meanwhile.
class LineEnds {
 public:
  /// Consecutive lines of a message.
  struct Run {
    uint32_t number;  ///< number of the GPU's message
    uint32_t first;   ///< the first line
    uint32_t lines;
  };

  /// Lines of a slot.
  static uint32_t lines_of(const tutti_slot_layout& layout) {
    return static_cast<uint32_t>(layout.slot_stride / LineSlot::kLineBytes);
  }

  /// `to`: slots that the GPU fills; `from`: slots that the GPU reads. Memory of the host.
  LineEnds(const tutti_slot_layout& layout, uint8_t* to, uint8_t* from);
  uint32_t slots() const { return static_cast<uint32_t>(outgoing_.size()); }
  uint32_t lines() const { return lines_; }  ///< lines of a slot

  /// Whether a slot that the GPU fills may have lines to take.
  bool has_lines(uint32_t index);
  /// Copies the data of these lines, `most` at most, to `data`. sent() says that they need not be taken again.
  Run take(uint32_t index, uint32_t most, uint8_t* data) const;
  void sent(const Run& run) { outgoing_[slot_of(run.number)].sent += run.lines; }
  /// Whether there are no lines to take.
  bool all_sent() const;

  /// Whether a slot has room for a run of the peer. The GPU is done with messages before `done`.
  bool fits(const Run& run, uint32_t done) const;
  void put(const Run& run, const uint8_t* data);

 private:
  /// A slot that the GPU fills.
  struct Outgoing {
    uint32_t flag = 0;  // of the latest message
    uint32_t sent = 0;  // lines of this message that have been sent
  };
  bool is_message(uint32_t flag, uint32_t index) const;
  uint32_t slot_of(uint32_t number) const { return number & (slots() - 1); }
  LineSlot slot(uint8_t* slots, uint32_t index) const { return LineSlot(slots + index * stride_, lines_); }

  const uint64_t stride_;
  const uint32_t lines_;
  uint8_t* const to_;
  uint8_t* const from_;
  std::vector<Outgoing> outgoing_;
  uint32_t latest_ = 0;            // the slot of the latest message
  uint32_t usual_lines_ = 0;       // lines of the message before
  std::vector<uint32_t> periods_;  // by slot that the GPU reads: the period of flags (LineSlot) of its lines
};

}  // namespace tutti::transport
