// SPDX-License-Identifier: Apache-2.0
#include "rail_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::net_socket {

RailSender::RailSender(std::vector<RailStream> streams, const Shared& shared)
    : shared_(shared), rails_(std::move(streams), true, shared) {
  for (Send& send : sends_) send.connection = this;
}

Status RailSender::send(const void* data, uint64_t bytes, uint32_t tag, void* /*registration*/, sdk::Request*& out) {
  TUTTI_TRY(rails_.failure());
  const auto free = std::find_if(sends_.begin(), sends_.end(), [](const Send& send) { return !send.used; });
  if (free == sends_.end()) return {};
  free->used = free->waits = true;
  free->data = static_cast<const uint8_t*>(data);
  free->bytes = bytes;
  free->tag = tag;
  waiting_.push_back(static_cast<uint32_t>(free - sends_.begin()));
  has_news_ = true;
  progress();
  out = &*free;
  return {};
}

Status RailSender::recv(uint32_t /*count*/, void* const* /*addresses*/, const uint64_t* /*bytes*/,
                        const uint32_t* /*tags*/, void* const* /*registrations*/, sdk::Request*& /*out*/) {
  return {Code::kInvalidArgument, "this connection only sends"};
}

Status RailSender::test(sdk::Request& tested, bool& done, uint64_t* /*bytes*/) {
  auto& send = static_cast<Send&>(tested);
  if (!send.is_done() && looks_.is_due(send, shared_.arousals->load(std::memory_order_relaxed))) look(send);
  if (!send.is_done()) return rails_.failure();
  send.used = false;
  done = true;
  return {};
}

/// The process of the other end may not run, so a short message need not wait for its acknowledgement.
void RailSender::look(Send& send) {
  const bool moved = progress() != 0;
  looks_.note(send, moved);
  if (moved || send.waits || send.open != 1 || send.rail == nullptr || send.bytes > kMaxKept) return;
  if (send.rail->keep(static_cast<uint32_t>(&send - sends_.data()))) send.open = 0;
}

uint64_t RailSender::progress() {
  uint64_t moves = rails_.progress(*this);
  if (!rails_.failure().ok() || !std::exchange(has_news_, false)) return moves;
  match();
  return moves + rails_.write(*this);
}

/// Messages of one tag take the receives of this tag in the order of their posts.
void RailSender::match() {
  std::erase_if(waiting_, [&](uint32_t place) {
    const auto receive = std::find_if(receives_.begin(), receives_.end(),
                                      [&](const Frame& posted) { return posted.tag == sends_[place].tag; });
    if (receive == receives_.end()) return false;
    dispatch(place, *receive);
    receives_.erase(receive);
    return true;
  });
}

/// Sends a message as one frame, or as one frame for each rail. Where it is too long for its receive, the receiver
/// learns its length alone.
void RailSender::dispatch(uint32_t place, const Frame& receive) {
  Send& send = sends_[place];
  send.waits = false;
  Frame frame;
  frame.kind = Frame::kData;
  frame.tag = receive.tag;
  frame.number = receive.number;
  frame.place = receive.place;
  frame.total = send.bytes;
  const uint64_t bytes = send.bytes <= receive.bytes ? send.bytes : 0;
  const uint64_t most = bytes >= shared_.stripe_bytes ? rails_.live_count() : 1;
  const uint64_t part = part_bytes(bytes, most);
  frame.parts = static_cast<uint8_t>(std::clamp<uint64_t>((bytes + part - 1) / part, 1, most));
  std::array<Rail*, kMaxRails> live{};
  size_t count = 0;
  for (const auto& rail : rails_.all()) {
    if (rail->is_live()) live[count++] = rail.get();
  }
  for (uint8_t i = 0; i < frame.parts; ++i) {
    frame.part = i;
    frame.offset = i * part;
    frame.bytes = i + 1 == frame.parts ? bytes - frame.offset : part;
    Rail& rail = frame.parts == 1 ? rails_.least_busy() : *live[i];
    send.rail = frame.parts == 1 ? &rail : nullptr;
    Parcel parcel;
    parcel.frame = frame;
    parcel.payload = send.data + frame.offset;
    parcel.request = place;
    rail.post(std::move(parcel));
    ++send.open;
  }
}

void RailSender::replace(Rail& lost) {
  for (Parcel& parcel : lost.take_unacknowledged()) {
    Rail& rail = rails_.least_busy();
    if (parcel.request != Parcel::kNoRequest && parcel.frame.parts == 1) sends_[parcel.request].rail = &rail;
    rail.post(std::move(parcel));
  }
}

Status RailSender::take(Rail& rail, const Frame& frame) {
  switch (frame.kind) {
    case Frame::kReceive:
      if (frame.number < next_receive_) return {};  // announced again, because a rail was lost
      if (receives_.size() == kMaxPosted) break;
      next_receive_ = frame.number + 1;
      receives_.push_back(frame);
      has_news_ = true;
      return {};
    case Frame::kAcknowledge:
      return rail.acknowledge(frame.number, [&](uint32_t place) { --sends_[place].open; });
    case Frame::kGivenUp:
    case Frame::kFarewell:
      return rails_.take(rail, frame);
    default:
      break;
  }
  return {Code::kMismatch, fmt::format("{}: received a damaged frame", rail.ends())};
}

/// The other end sends no data: take() refuses them.
Status RailSender::arrived(Rail& /*rail*/, const Frame& /*frame*/) {
  return {};
}

}  // namespace tutti::net_socket
