// SPDX-License-Identifier: Apache-2.0
#include "transport/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::transport {
namespace {

/// A registration needs no descriptor afterwards. A rank has many relays, and few descriptors.
Result<void*> register_slots(Channel& channel, MessageMemory& slots) {
  auto registration = channel.register_memory(slots);
  slots.dmabuf.reset();
  return registration;
}

}  // namespace

Relay::Relay(const Net& net, Options options)
    : RelayTask(net, options.key, options.at, options.of),
      options_(std::move(options)),
      out_records_(options_.layout.slot_count + 1),
      in_records_(options_.layout.slot_count + kSignals),
      outgoing_(options_.layout.slot_count),
      incoming_(options_.layout.slot_count) {}

Status Relay::open_out() {
  TUTTI_ASSIGN(to_registration_, register_slots(*out_, options_.to));
  TUTTI_ASSIGN(out_registration_, out_->register_memory({out_records_.data(), out_records_.size() * sizeof(Record)}));
  return {};
}

Status Relay::open_in() {
  TUTTI_ASSIGN(from_registration_, register_slots(*in_, options_.from));
  TUTTI_ASSIGN(in_registration_, in_->register_memory({in_records_.data(), in_records_.size() * sizeof(Record)}));
  return {};
}

bool Relay::all_sent() const {
  if (gpu_.tail() != sent_ || signal_ != nullptr) return false;
  for (const Outgoing& slot : outgoing_) {
    if (slot.slice != nullptr || slot.record != nullptr) return false;
  }
  return true;
}

Result<bool> Relay::send() {
  TUTTI_ASSIGN(bool moved, complete_sends());
  const uint32_t done = gpu_.done();
  const uint32_t tail = gpu_.tail();
  const uint32_t slots = options_.layout.slot_count;
  if (tail - sent_ > slots) sent_ = tail - slots;  // a later number has found a slot, so all before it are free
  for (; sent_ != tail; ++sent_) {
    const uint64_t length = std::atomic_ref(const_cast<uint64_t&>(options_.lengths[slot_of(sent_)]))
                                .load(std::memory_order_relaxed);  // ordered by the tail
    const uint64_t bytes = length >> 32;
    if (static_cast<uint32_t>(length) != sent_ || bytes == 0) continue;  // no message had this number
    TUTTI_ASSIGN(const bool posted, send_slice(sent_, bytes, done));
    if (!posted) return moved;
    moved = true;
  }
  if (done == told_) return moved;
  TUTTI_ASSIGN(const bool told, send_signal(done));
  return moved || told;
}

/// Frees the requests that are done.
Result<bool> Relay::complete_sends() {
  bool moved = false;
  uint64_t under_way = 0;
  for (Outgoing& slot : outgoing_) {
    TUTTI_ASSIGN(const bool slice, finish(slot.slice));
    TUTTI_ASSIGN(const bool record, finish(slot.record));
    moved = moved || slice || record;
    if (slot.slice != nullptr) ++under_way;
  }
  out_state_.count(slice_step_, slice_step_ - under_way);
  TUTTI_ASSIGN(const bool signal, finish(signal_));
  return moved || signal;
}

/// False: the network takes no more now. A record that finds no place goes first the next time.
Result<bool> Relay::send_slice(uint32_t number, uint64_t bytes, uint32_t done) {
  const uint32_t index = slot_of(number);
  Outgoing& slot = outgoing_[index];
  if (slot.slice != nullptr) return false;
  const Record record{slice_step_, bytes, number, done};
  uint8_t* const slice = at(options_.to, index);
  if (!options_.splits) {
    std::memcpy(slice + bytes, &record, sizeof record);
    TUTTI_ASSIGN(slot.slice, out_->send({slice, bytes + sizeof record, kSliceTag + index, to_registration_}));
  } else {
    if (!slot.record_sent) {
      if (slot.record != nullptr) return false;
      out_records_[index] = record;
      TUTTI_ASSIGN(slot.record,
                   out_->send({&out_records_[index], sizeof record, kRecordTag + index, out_registration_}));
      if (slot.record == nullptr) return false;
      slot.record_sent = true;
    }
    TUTTI_ASSIGN(slot.slice, out_->send({slice, bytes, kSliceTag + index, to_registration_}));
  }
  if (slot.slice == nullptr) return false;
  slot.record_sent = false;
  told_ = options_.splits ? out_records_[index].done : done;  // the GPU may have done more since the record went
  ++slice_step_;
  return true;
}

/// False: the previous signal is still under way.
Result<bool> Relay::send_signal(uint32_t done) {
  if (signal_ != nullptr) return false;
  Record& record = out_records_.back();
  record = {signal_step_, 0, 0, done};
  TUTTI_ASSIGN(signal_, out_->send({&record, sizeof record, kSignalTag, out_registration_}));
  if (signal_ == nullptr) return false;
  told_ = done;
  ++signal_step_;
  return true;
}

Result<bool> Relay::receive() {
  const uint32_t done = gpu_.done();
  TUTTI_ASSIGN(bool moved, take_signals());
  for (uint32_t slot = 0; slot < options_.layout.slot_count; ++slot) {
    TUTTI_ASSIGN(const bool taken, take(slot, done));
    moved = moved || taken;
  }
  for (bool again = true; again;) {
    again = false;
    for (uint32_t slot = 0; slot < options_.layout.slot_count; ++slot) {
      TUTTI_ASSIGN(const bool delivered, deliver(slot));
      again = again || delivered;
    }
    moved = moved || again;
  }
  uint64_t waiting = 0;
  for (uint32_t slot = 0; slot < options_.layout.slot_count; ++slot) {
    TUTTI_ASSIGN(const bool posted, post(slot, done));
    moved = moved || posted;
    if (incoming_[slot].state == Incoming::State::kPosted) ++waiting;
  }
  in_state_.count(next_slice_ + waiting, next_slice_);
  return moved;
}

Result<bool> Relay::take_signals() {
  bool moved = false;
  for (uint32_t i = 0; i < kSignals; ++i) {
    Record& record = in_records_[options_.layout.slot_count + i];
    if (signals_[i] != nullptr) {
      uint64_t bytes = 0;
      TUTTI_ASSIGN(const bool done, in_->test(signals_[i], &bytes));
      if (!done) continue;
      signals_[i] = nullptr;
      if (bytes != sizeof record || record.bytes != 0 || record.step >= next_signal_ + kSignals) {
        return in_->mismatch(fmt::format("a signal of {} bytes, number {} after {}", bytes, record.step, next_signal_));
      }
      next_signal_ = std::max(next_signal_, record.step + 1);
      gpu_.hear(record.done);
      moved = true;
    }
    TUTTI_ASSIGN(signals_[i], in_->recv({&record, sizeof record, kSignalTag, in_registration_}));
  }
  return moved;
}

/// Posts the receive of a slot that the GPU is done with.
Result<bool> Relay::post(uint32_t index, uint32_t done) {
  Incoming& slot = incoming_[index];
  if (slot.state != Incoming::State::kBusy || (slot.used && !GpuSignals::is_after(done, slot.number))) return false;
  const uint64_t room = options_.splits ? options_.layout.slot_bytes : options_.layout.slot_bytes + sizeof(Record);
  const MessagePart slice{at(options_.from, index), room, kSliceTag + index, from_registration_};
  const MessagePart record{&in_records_[index], sizeof(Record), kRecordTag + index, in_registration_};
  if (options_.splits && options_.groups) {
    const std::array<MessagePart, 2> both = {slice, record};
    TUTTI_ASSIGN(slot.slice, in_->recv(both));
  } else {
    if (slot.slice == nullptr) {
      TUTTI_ASSIGN(slot.slice, in_->recv(slice));
    }
    if (options_.splits && slot.slice != nullptr) {
      TUTTI_ASSIGN(slot.record, in_->recv(record));
      if (slot.record == nullptr) return false;
    }
  }
  if (slot.slice == nullptr) return false;
  slot.state = Incoming::State::kPosted;
  return true;
}

/// Takes the slice of a slot that has arrived, with its record.
Result<bool> Relay::take(uint32_t index, uint32_t done) {
  Incoming& slot = incoming_[index];
  if (slot.state != Incoming::State::kPosted) return false;
  if (slot.slice != nullptr) {
    std::array<uint64_t, 2> bytes{};
    TUTTI_ASSIGN(const bool arrived, in_->test(slot.slice, bytes.data()));
    if (!arrived) return false;
    slot.slice = nullptr;
    slot.bytes = bytes[0];
  }
  if (slot.record != nullptr) {
    TUTTI_ASSIGN(const bool arrived, in_->test(slot.record, nullptr));
    if (!arrived) return false;
    slot.record = nullptr;
  }
  if (options_.splits) {
    slot.arrived = in_records_[index];
  } else {
    if (slot.bytes <= sizeof(Record)) return in_->mismatch(fmt::format("a slice of {} bytes", slot.bytes));
    slot.bytes -= sizeof(Record);
    std::memcpy(&slot.arrived, at(options_.from, index) + slot.bytes, sizeof(Record));
  }
  TUTTI_TRY(check(slot.arrived, slot.bytes, index, done));
  slot.state = Incoming::State::kArrived;
  return true;
}

/// Tells the GPU of the next slice, in the order sent.
Result<bool> Relay::deliver(uint32_t index) {
  Incoming& slot = incoming_[index];
  const bool has_arrived = slot.state == Incoming::State::kArrived || slot.state == Incoming::State::kFlushing;
  if (!has_arrived || slot.arrived.step != next_slice_) return false;
  if (options_.flushes && slot.state == Incoming::State::kArrived) {
    TUTTI_ASSIGN(slot.flush, in_->flush({at(options_.from, index), slot.bytes, kSliceTag + index, from_registration_}));
    slot.state = Incoming::State::kFlushing;
  }
  if (slot.flush != nullptr) {
    TUTTI_ASSIGN(const bool flushed, in_->test(slot.flush, nullptr));
    if (!flushed) return false;
    slot.flush = nullptr;
  }
  slot.state = Incoming::State::kBusy;
  slot.used = true;
  slot.number = slot.arrived.number;
  ++next_slice_;
  gpu_.deliver(slot.number + 1);
  gpu_.hear(slot.arrived.done);
  return true;
}

Status Relay::check(const Record& record, uint64_t bytes, uint32_t index, uint32_t done) const {
  const uint32_t slots = options_.layout.slot_count;
  if (record.bytes == bytes && bytes > 0 && slot_of(record.number) == index && record.number - done < slots &&
      record.step - next_slice_ < slots) {
    return {};
  }
  return in_->mismatch(
      fmt::format("a slice of {} bytes in slot {}, which its sender calls {} bytes of message {}, step {}; "
                  "{} slots from message {} and step {} on are free",
                  bytes, index, record.bytes, record.number, record.step, slots, done, next_slice_));
}

}  // namespace tutti::transport
