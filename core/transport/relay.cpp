// SPDX-License-Identifier: Apache-2.0
#include "transport/relay.h"

#include <fmt/format.h>

#include <cstring>

namespace tutti::transport {
namespace {

// Partners of the GPU's stores and loads with system scope: mailboxes are memory of the host.
uint32_t load(uint32_t& word) {
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}
void store(uint32_t& word, uint32_t value) {
  std::atomic_ref<uint32_t>(word).store(value, std::memory_order_release);
}

std::atomic_ref<uint64_t> counter(uint64_t* value) {
  return std::atomic_ref<uint64_t>(*value);
}

uint8_t* slot_of(const tutti_connection& connection, uint64_t step) {
  return connection.slots + (step & (connection.slot_count - 1)) * connection.slot_stride;
}

}  // namespace

Relay::Relay(const tutti_slot_layout& layout, tutti_connection* out, tutti_connection* in,
             std::shared_ptr<const std::atomic<uint64_t>> longest)
    : layout_(layout), out_(out), in_(in), longest_(std::move(longest)) {
  static_assert(sizeof(Header) <= kHeaderBytes);
}

Result<bool> Relay::progress() {
  TUTTI_ASSIGN(const bool received, receive());
  return send() || received;
}

bool Relay::idle() const {
  return load(memory_.at->tail) == sent_;
}

bool Relay::send() {
  bool moved = false;
  const uint32_t done = load(memory_.at->done);
  const uint32_t tail = load(memory_.at->tail);
  const uint8_t* const slots = memory_.to.load(std::memory_order_acquire);
  if (slots == nullptr) {
    sent_ = tail;
  } else if (tail - sent_ > layout_.slot_count) {
    sent_ = tail - layout_.slot_count;
  }
  const uint64_t bytes = longest_->load(std::memory_order_acquire);
  for (; sent_ != tail; ++sent_) {
    if (!put({sent_, 1, done, 0, bytes}, slots + place(sent_))) return moved;
    told_ = done;
    moved = true;
  }
  if (done == told_ || !put({0, 0, done, 0, 0}, nullptr)) return moved;
  told_ = done;
  return true;
}

/// False: the network is not done with what was sent before.
bool Relay::put(const Header& header, const uint8_t* slot) {
  tutti_connection& to = *out_;
  if (to.step - counter(to.head).load(std::memory_order_acquire) >= to.slot_count) return false;
  uint8_t* const at = slot_of(to, to.step);
  std::memcpy(at, &header, sizeof header);
  if (header.bytes > 0) std::memcpy(at + kHeaderBytes, slot, header.bytes);
  if (to.sizes != nullptr) to.sizes[to.step & (to.slot_count - 1)] = kHeaderBytes + header.bytes;
  counter(to.tail).store(++to.step, std::memory_order_seq_cst);
  return true;
}

Result<bool> Relay::receive() {
  tutti_connection& from = *in_;
  const uint64_t filled = counter(from.tail).load(std::memory_order_acquire);
  const uint64_t before = from.step;
  for (; from.step < filled; ++from.step) {
    const uint8_t* const at = slot_of(from, from.step);
    Header header;
    std::memcpy(&header, at, sizeof header);
    if (from.sizes != nullptr && from.sizes[from.step & (from.slot_count - 1)] != kHeaderBytes + header.bytes) {
      return Status(Code::kMismatch,
                    fmt::format("rank {} sends a message of {} bytes as a slice of {} bytes", from.peer,
                                from.sizes[from.step & (from.slot_count - 1)], header.bytes));
    }
    if (header.bytes > layout_.slot_stride) {
      return Status(Code::kMismatch, fmt::format("rank {} sends slices of {} bytes for slots of {} bytes", from.peer,
                                                 header.bytes, layout_.slot_stride));
    }
    if (header.has_slot != 0) {
      uint8_t* const slots = memory_.from.load(std::memory_order_acquire);
      if (slots == nullptr) break;  // this rank has not made the call yet
      if (header.bytes > 0) std::memcpy(slots + place(header.number), at + kHeaderBytes, header.bytes);
      store(memory_.of->tail, header.number + 1);
    }
    store(memory_.of->done, header.done);
  }
  if (from.step == before) return false;
  counter(from.head).store(from.step, std::memory_order_seq_cst);
  return true;
}

}  // namespace tutti::transport
