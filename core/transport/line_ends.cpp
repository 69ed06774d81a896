// SPDX-License-Identifier: Apache-2.0
#include "transport/line_ends.h"

namespace tutti::transport {
namespace {

/// Looks for further lines while fewer have come than usual: less than a microsecond.
constexpr int kLooks = 200;

}  // namespace

LineEnds::LineEnds(const tutti_slot_layout& layout, uint8_t* to, uint8_t* from)
    : stride_(layout.slot_stride),
      lines_(lines_of(layout)),
      to_(to),
      from_(from),
      outgoing_(layout.slot_count),
      periods_(layout.slot_count) {
  for (uint32_t index = 0; index < slots(); ++index) {
    // Flag i is the flag of a message in slot i - 1, so no flag looks new.
    for (uint8_t* const slots : {to_, from_}) slot(slots, index).rewrite_flags(index);
    outgoing_[index] = {index, lines_};
  }
}

/// Whether the flag is the flag of a message in this slot. A rewrite leaves flags of a different slot.
bool LineEnds::is_message(uint32_t flag, uint32_t index) const {
  return slot_of(flag - 1) == index;
}

bool LineEnds::all_sent() const {
  for (uint32_t index = 0; index < slots(); ++index) {
    const LineSlot lines = slot(to_, index);
    const uint32_t flag = lines.flag();
    if (flag != outgoing_[index].flag && is_message(flag, index)) return false;
    if (lines.has(outgoing_[index].sent, outgoing_[index].flag)) return false;
  }
  return true;
}

/// Begins the message whose first line has come, if any.
bool LineEnds::has_lines(uint32_t index) {
  Outgoing& outgoing = outgoing_[index];
  const LineSlot lines = slot(to_, index);
  const uint32_t flag = lines.flag();
  if (flag != outgoing.flag && is_message(flag, index)) {
    usual_lines_ = outgoing_[latest_].sent;
    latest_ = index;
    outgoing = {flag, 0};
  }
  return lines.has(outgoing.sent, outgoing.flag);
}

LineEnds::Run LineEnds::take(uint32_t index, uint32_t most, uint8_t* data) const {
  const Outgoing& outgoing = outgoing_[index];
  const LineSlot lines = slot(to_, index);
  Run run{outgoing.flag - 1, outgoing.sent, 0};
  for (int look = 0; look < kLooks && run.lines < most; ++look) {
    run.lines +=
        lines.take(run.first + run.lines, most - run.lines, outgoing.flag, data + run.lines * LineSlot::kDataBytes);
    if (run.first + run.lines >= usual_lines_) break;
  }
  return run;
}

bool LineEnds::fits(const Run& run, uint32_t done) const {
  return run.number - done < slots() && run.first <= lines_ && run.lines <= lines_ - run.first;
}

void LineEnds::put(const Run& run, const uint8_t* data) {
  const uint32_t index = slot_of(run.number);
  const LineSlot lines = slot(from_, index);
  if (const uint32_t period = LineSlot::period_of(run.number); period != periods_[index]) {
    lines.rewrite_flags(run.number);
    periods_[index] = period;
  }
  lines.put(run.first, run.lines, run.number + 1, data);
}

}  // namespace tutti::transport
