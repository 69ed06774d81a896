// SPDX-License-Identifier: Apache-2.0
#include "transport/slot_carrier.h"

#include <atomic>

namespace tutti::transport {
namespace {

// Partners of SlotMemory's loads and stores.
uint64_t load(uint64_t* counter) {
  return std::atomic_ref(*counter).load(std::memory_order_acquire);
}
void store(uint64_t* counter, uint64_t value) {
  std::atomic_ref(*counter).store(value, std::memory_order_release);
}

}  // namespace

std::span<uint8_t> SlotCarrier::room() {
  if (out_.step - out_.seen >= out_.slot_count) out_.seen = load(out_.head);
  if (out_.step - out_.seen >= out_.slot_count) return {};
  return {out_.slots + slot_of(out_) * out_.slot_stride, out_.payload_bytes};
}

void SlotCarrier::send(uint64_t bytes) {
  out_.sizes[slot_of(out_)] = bytes;
  store(out_.tail, ++out_.step);
}

std::span<const uint8_t> SlotCarrier::next() {
  if (in_.seen == in_.step) in_.seen = load(in_.tail);
  if (in_.seen == in_.step) return {};
  return {in_.slots + slot_of(in_) * in_.slot_stride, in_.sizes[slot_of(in_)]};
}

void SlotCarrier::release() {
  store(in_.head, ++in_.step);
}

}  // namespace tutti::transport
