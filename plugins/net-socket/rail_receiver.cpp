// SPDX-License-Identifier: Apache-2.0
#include "rail_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::net_socket {

RailReceiver::RailReceiver(std::vector<RailStream> streams, const Shared& shared)
    : shared_(shared), rails_(std::move(streams), false, shared) {
  for (Receive& receive : receives_) receive.connection = this;
}

Status RailReceiver::send(const void* /*data*/, uint64_t /*bytes*/, uint32_t /*tag*/, void* /*registration*/,
                          sdk::Request*& /*out*/) {
  return {Code::kInvalidArgument, "this connection only receives"};
}

Status RailReceiver::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                          void* const* /*registrations*/, sdk::Request*& out) {
  if (count == 0 || count > kMaxGroup) {
    return {Code::kInvalidArgument, fmt::format("a receive of {} messages; 1 to {} may be grouped", count, kMaxGroup)};
  }
  TUTTI_TRY(rails_.failure());
  const auto free = std::find_if(receives_.begin(), receives_.end(), [](const Receive& r) { return !r.used; });
  if (free == receives_.end()) return {};
  free->used = true;
  free->count = free->open = count;
  const auto place = static_cast<uint32_t>(free - receives_.begin()) * kMaxGroup;
  for (uint32_t i = 0; i < count; ++i) {
    Message& message = free->messages[i];
    message = {};
    message.open = true;
    message.address = static_cast<uint8_t*>(addresses[i]);
    message.size = bytes[i];
    message.tag = tags[i];
    message.number = next_number_++;
    if (rails_.live_count() > 0) announce(place + i, message);
  }
  rails_.write(*this);
  looks_.expect_data();
  out = &*free;
  return {};
}

Status RailReceiver::test(sdk::Request& tested, bool& done, uint64_t* bytes) {
  auto& receive = static_cast<Receive&>(tested);
  if (receive.open > 0 && looks_.is_due(receive, shared_.arousals->load(std::memory_order_relaxed)))
    looks_.note(receive, progress() != 0);
  if (receive.open > 0) return rails_.failure();
  for (uint32_t i = 0; bytes != nullptr && i < receive.count; ++i) bytes[i] = receive.messages[i].size;
  receive.used = false;
  done = true;
  return {};
}

/// One acknowledgement answers all frames of a look.
uint64_t RailReceiver::progress() {
  uint64_t moves = rails_.progress(*this);
  for (const auto& rail : rails_.all()) {
    const uint64_t frames = frames_[rail->index()];
    if (!rail->is_live() || std::exchange(acknowledged_[rail->index()], frames) == frames) continue;
    Frame frame;
    frame.kind = Frame::kAcknowledge;
    frame.number = frames;
    rail->post(frame);
  }
  return moves + rails_.write(*this);
}

void RailReceiver::announce(uint32_t place, const Message& message) {
  Frame frame;
  frame.kind = Frame::kReceive;
  frame.tag = message.tag;
  frame.number = message.number;
  frame.bytes = message.size;
  frame.place = static_cast<uint16_t>(place);
  rails_.first_live().post(frame);
}

void RailReceiver::replace(Rail& /*lost*/) {
  std::vector<std::pair<uint64_t, uint32_t>> open;  // number and place
  for (uint32_t r = 0; r < kMaxRequests; ++r) {
    for (uint32_t i = 0; receives_[r].used && i < receives_[r].count; ++i) {
      const Message& message = receives_[r].messages[i];
      if (message.open) open.emplace_back(message.number, r * kMaxGroup + i);
    }
  }
  std::sort(open.begin(), open.end());
  for (const auto& [number, place] : open) announce(place, receives_[place / kMaxGroup].messages[place % kMaxGroup]);
}

Status RailReceiver::take(Rail& rail, const Frame& frame) {
  if (frame.kind == Frame::kGivenUp || frame.kind == Frame::kFarewell) return rails_.take(rail, frame);
  if (frame.kind == Frame::kData) return take_data(rail, frame);
  return {Code::kMismatch, fmt::format("{}: received a damaged frame", rail.ends())};
}

/// The message that is not whole and that the frame belongs to; null: none.
RailReceiver::Message* RailReceiver::find(const Frame& frame) {
  Receive& receive = receives_[frame.place / kMaxGroup];
  Message& message = receive.messages[frame.place % kMaxGroup];
  return receive.used && message.open && message.number == frame.number ? &message : nullptr;
}

Status RailReceiver::take_data(Rail& rail, const Frame& frame) {
  const bool is_known = frame.place < kMaxRequests * kMaxGroup && frame.number < next_number_;
  if (!is_known || frame.parts == 0 || frame.parts > kMaxRails || frame.part >= frame.parts) {
    return {Code::kMismatch, fmt::format("{}: received a damaged frame", rail.ends())};
  }
  rail.discard();
  Message* const message = find(frame);
  if (message == nullptr) return {};  // whole already: the part was sent again
  if (frame.total > message->size) {
    return {Code::kMismatch,
            fmt::format("a message of {} bytes ({}) is longer than the {} bytes of its receive (tag {})", frame.total,
                        rail.ends(), message->size, message->tag)};
  }
  const bool is_first = message->parts == 0;
  if ((!is_first && (message->parts != frame.parts || message->total != frame.total)) || frame.bytes > frame.total ||
      frame.offset > frame.total - frame.bytes) {
    return {Code::kMismatch, fmt::format("{}: received a damaged frame", rail.ends())};
  }
  message->parts = frame.parts;
  message->total = frame.total;
  if ((message->arrived >> frame.part & 1) == 0) rail.receive_to(message->address + frame.offset);
  return {};
}

Status RailReceiver::arrived(Rail& rail, const Frame& frame) {
  ++frames_[rail.index()];
  Message* const message = find(frame);
  if (message == nullptr || (message->arrived >> frame.part & 1) != 0) return {};
  message->arrived = static_cast<uint8_t>(message->arrived | 1 << frame.part);
  message->bytes += frame.bytes;
  for (const auto& other : rails_.all()) {  // that brings the same part: the buffer may be free soon
    if (other->is_receiving(frame)) other->discard();
  }
  if (message->arrived != (1 << message->parts) - 1) return {};
  if (message->bytes != message->total)
    return {Code::kMismatch, fmt::format("{}: the parts of a message do not make it up", rail.ends())};
  message->size = message->total;
  message->open = false;
  --receives_[frame.place / kMaxGroup].open;
  return {};
}

}  // namespace tutti::net_socket
