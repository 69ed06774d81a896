// SPDX-License-Identifier: Apache-2.0
#include "transport/carried_relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tutti::transport {

CarriedRelay::CarriedRelay(Options options)
    : options_(std::move(options)), gpu_(options_.at, options_.of), carrier_(*options_.out, *options_.in) {}

Result<bool> CarriedRelay::progress() {
  TUTTI_ASSIGN(const bool received, carrier_.receive([this](auto message) { return take(message); }));
  const bool sent = send();
  return received || sent;
}

/// The connection owes what its slots hold.
bool CarriedRelay::idle() const {
  return gpu_.tail() == sent_ && gpu_.done() == told_;
}

bool CarriedRelay::send() {
  const uint32_t tail = gpu_.tail();
  const uint32_t slots = options_.layout.slot_count;
  if (tail - sent_ > slots) sent_ = tail - slots;  // a later number has found a slot, so all before it are free
  bool moved = false;
  for (; sent_ != tail; ++sent_, sent_bytes_ = 0) {
    const uint64_t length = std::atomic_ref(const_cast<uint64_t&>(options_.lengths[sent_ & (slots - 1)]))
                                .load(std::memory_order_relaxed);  // ordered by the tail
    if (static_cast<uint32_t>(length) != sent_) continue;          // no message had this number
    const uint64_t before = sent_bytes_;
    const bool whole = send_slice(length >> 32);
    moved = moved || sent_bytes_ != before;
    if (!whole) return moved;
  }
  if (gpu_.done() == told_) return moved;
  return post({}, nullptr, 0) || moved;
}

/// False: the connection has no free slot for the rest.
bool CarriedRelay::send_slice(uint64_t bytes) {
  const uint64_t most = options_.out->payload_bytes - sizeof(Header);
  while (sent_bytes_ < bytes) {
    const uint64_t part = std::min(most, bytes - sent_bytes_);
    if (!post({bytes, sent_bytes_, sent_, 0}, options_.to + offset_of(sent_) + sent_bytes_, part)) return false;
    sent_bytes_ += part;
  }
  return true;
}

/// Sends a message whose header lacks `done`. False: the connection has no free slot.
bool CarriedRelay::post(const Header& header, const uint8_t* data, uint64_t bytes) {
  const std::span<uint8_t> room = carrier_.room();
  if (room.empty()) return false;
  Header complete = header;
  complete.done = gpu_.done();
  std::memcpy(room.data(), &complete, sizeof complete);
  if (bytes > 0) std::memcpy(room.data() + sizeof complete, data, bytes);
  carrier_.send(sizeof complete + bytes);
  told_ = complete.done;
  return true;
}

Status CarriedRelay::take(std::span<const uint8_t> message) {
  Header header{};
  std::memcpy(&header, message.data(), std::min(message.size(), sizeof header));
  const uint64_t part = message.size() - std::min(message.size(), sizeof header);
  const uint32_t done = gpu_.done();
  const bool has_slot = header.number - done < options_.layout.slot_count && header.bytes <= options_.layout.slot_bytes;
  const bool is_same = came_bytes_ == 0 || (header.number == coming_.number && header.bytes == coming_.bytes);
  const bool follows = is_same && header.offset == came_bytes_ && part > 0 && part <= header.bytes - came_bytes_;
  const bool is_news = header.bytes == 0 && part == 0 && came_bytes_ == 0;
  if (message.size() < sizeof header || (!is_news && !(has_slot && follows))) {
    return {Code::kInternal,
            fmt::format("rank {} has sent {} bytes, and calls them part of message {} of {} bytes, from byte {}; {} "
                        "bytes of this message are here, and {} slots of {} bytes from message {} on are free",
                        options_.key.peer, part, header.number, header.bytes, header.offset, came_bytes_,
                        options_.layout.slot_count, options_.layout.slot_bytes, done)};
  }
  if (!is_news) {
    std::memcpy(options_.from + offset_of(header.number) + header.offset, message.data() + sizeof header, part);
    coming_ = header;
    came_bytes_ += part;
    if (came_bytes_ == header.bytes) {
      came_bytes_ = 0;
      gpu_.deliver(header.number + 1);
    }
  }
  gpu_.hear(header.done);
  return {};
}

}  // namespace tutti::transport
