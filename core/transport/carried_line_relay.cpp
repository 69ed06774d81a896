// SPDX-License-Identifier: Apache-2.0
#include "transport/carried_line_relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::transport {
namespace {

/// Rounds for which a `done` waits for lines that take it along, if data goes both ways.
constexpr uint32_t kHeldRounds = 50;

}  // namespace

CarriedLineRelay::CarriedLineRelay(Options options)
    : options_(std::move(options)),
      gpu_(options_.at, options_.of),
      carrier_(*options_.out, *options_.in),
      lines_(options_.layout, options_.to, options_.from) {}

Result<bool> CarriedLineRelay::progress() {
  TUTTI_ASSIGN(const bool received, carrier_.receive([this](auto message) { return take(message); }));
  const bool sent = send();
  return received || sent;
}

/// The connection owes what its slots hold.
bool CarriedLineRelay::idle() const {
  return lines_.all_sent() && gpu_.done() == told_;
}

bool CarriedLineRelay::send() {
  bool moved = false;
  for (uint32_t index = 0; index < lines_.slots(); ++index) {
    while (lines_.has_lines(index) && send_lines(index)) moved = true;
  }
  if (gpu_.done() == told_) return moved;
  // While a `done` waits, the thread does not sleep.
  if (answers_ && ++held_rounds_ <= kHeldRounds) return true;
  return tell_done() || moved;
}

/// False: the connection has no free slot.
bool CarriedLineRelay::send_lines(uint32_t index) {
  const std::span<uint8_t> room = carrier_.room();
  if (room.empty()) return false;
  const auto most = static_cast<uint32_t>((room.size() - sizeof(Header)) / LineSlot::kDataBytes);
  const LineEnds::Run run = lines_.take(index, most, room.data() + sizeof(Header));
  post(room, run);
  lines_.sent(run);
  return true;
}

/// False: the connection has no free slot.
bool CarriedLineRelay::tell_done() {
  const std::span<uint8_t> room = carrier_.room();
  if (room.empty()) return false;
  post(room, {});
  return true;
}

/// Sends the data of lines that lie in `room` behind the header.
void CarriedLineRelay::post(std::span<uint8_t> room, const LineEnds::Run& run) {
  const Header header{run, gpu_.done()};
  std::memcpy(room.data(), &header, sizeof header);
  carrier_.send(sizeof header + run.lines * LineSlot::kDataBytes);
  told_ = header.done;
  answers_ = run.lines > 0;
  held_rounds_ = 0;
}

Status CarriedLineRelay::take(std::span<const uint8_t> message) {
  Header header{};
  std::memcpy(&header, message.data(), std::min(message.size(), sizeof header));
  const uint32_t done = gpu_.done();
  const LineEnds::Run& run = header.run;
  const bool is_whole = message.size() == sizeof header + run.lines * LineSlot::kDataBytes;
  if (!is_whole || (run.lines > 0 && !lines_.fits(run, done))) {
    return {Code::kInternal,
            fmt::format("rank {} has sent {} bytes, and calls them {} lines of message {} from line {}; {} slots of {} "
                        "lines from message {} on are free",
                        options_.key.peer, message.size(), run.lines, run.number, run.first, lines_.slots(),
                        lines_.lines(), done)};
  }
  if (run.lines > 0) lines_.put(run, message.data() + sizeof header);
  gpu_.hear(header.done);
  return {};
}

}  // namespace tutti::transport
