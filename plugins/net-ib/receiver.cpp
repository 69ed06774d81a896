// SPDX-License-Identifier: Apache-2.0
#include "receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "memory.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

constexpr uint32_t kMostWrites = 64;  // of records at once
}  // namespace

Receiver::Receiver(std::unique_ptr<Link> link) : link_(std::move(link)) {
  for (Receive& request : requests_) request.connection = this;
  link_->start(*this);
}

Result<void*> Receiver::register_memory(void* address, uint64_t bytes, uint32_t memory) {
  return register_range(*link_, address, bytes, memory);
}
Result<void*> Receiver::register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) {
  return net_ib::register_dmabuf(*link_, address, bytes, offset, fd);
}
Status Receiver::deregister_memory(void* registration) {
  return deregister(*link_, registration);
}

Status Receiver::send(const void* /*address*/, uint64_t /*bytes*/, uint32_t /*tag*/, void* /*registration*/,
                      sdk::Request*& /*request*/) {
  return {Code::kInvalidArgument, "this connection only receives"};
}

Receiver::Receive* Receiver::take_request() {
  const auto free =
      std::find_if(requests_.begin(), requests_.end(), [](const Receive& request) { return !request.used; });
  return free == requests_.end() ? nullptr : free;
}

/// Entries of the next sequence numbers; messages of different tags may end in a different order than they were posted.
bool Receiver::has_room(uint32_t entries) const {
  for (uint32_t i = 0; i < entries; ++i) {
    if (entries_[(next_ + i) % kRecords].receive != nullptr) return false;
  }
  return true;
}

Status Receiver::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                      void* const* registrations, sdk::Request*& request) {
  TUTTI_TRY(link_->failure());
  if (count == 0 || count > kMaxGroup) {
    return {Code::kInvalidArgument, fmt::format("a receive of {} messages; 1 to {} may be grouped", count, kMaxGroup)};
  }
  std::array<const Registered*, kMaxGroup> registered{};
  for (uint32_t i = 0; i < count; ++i) {
    TUTTI_ASSIGN(registered[i], find_registered(registrations[i], addresses[i], bytes[i]));
  }
  Receive* const receive = take_request();
  if (receive == nullptr || !has_room(count)) return {};
  receive->used = true;
  receive->count = receive->open = count;
  receive->arrived.fill(0);
  receive->failure = {};
  for (uint32_t i = 0; i < count; ++i) add_entry(*receive, i, addresses[i], bytes[i], registered[i], tags[i]);
  request = receive;
  if (const Status announced = announce(); !announced.ok()) link_->fail(announced);
  return {};
}

void Receiver::add_entry(Receive& receive, uint32_t index, void* address, uint64_t bytes, const Registered* registered,
                         uint32_t tag) {
  const uint32_t place = next_ % kRecords;
  entries_[place] = {&receive, index, 0, 0};
  Record& record = link_->mailbox().records[place];
  record = {reinterpret_cast<uint64_t>(address), bytes, {}, tag, next_};
  for (size_t i = 0; registered != nullptr && i < link_->rails().size(); ++i)
    record.keys[i] = registered->rails[i]->region->rkey;
  one_tag_ = open_ == 0 || (one_tag_ && tag == tag_);
  tag_ = tag;
  ++open_;
  ++next_;
}

/// With several tags, a sender may wait for the very receive that is not announced.
bool Receiver::may_wait() const {
  return one_tag_ && next_ - announced_ < announced_open_;
}

/// One write for all records up to the end of the mailbox. All records take the first queue pair, because their order
/// counts.
Status Receiver::announce() {
  while (announced_ != next_ && !may_wait() && writes_ < kMostWrites && link_->has_room()) {
    const uint32_t place = announced_ % kRecords;
    const uint32_t count = std::min(next_ - announced_, kRecords - place);
    const uint64_t offset = offsetof(RdmaMailbox, records) + place * sizeof(Record);
    const Link::QueuePairRef queue_pair = link_->queue_pairs().front();
    TUTTI_TRY(link_->write_mailbox(queue_pair, Work::kRecord, 0, offset, static_cast<uint32_t>(count * sizeof(Record)),
                                   offset, count));
    announced_by_ = queue_pair.rail;
    announced_ += count;
    announced_open_ += count;
    ++writes_;
  }
  return {};
}

void Receiver::progress() {
  link_->poll();
  if (!link_->failure().ok()) return;
  if (const Status announced = announce(); !announced.ok()) link_->fail(announced);
}

void Receiver::complete(Work work, uint32_t value) {
  if (work == Work::kRecord) --writes_;
  if (work == Work::kFlush) --requests_[value].open;
}

void Receiver::abandon(uint32_t /*rail*/, Work work, uint32_t /*value*/) {
  if (work == Work::kRecord) --writes_;
}

void Receiver::report(Report& out) const {
  for (uint32_t place = 0; place < kRecords; ++place) {
    const Entry& entry = entries_[place];
    out.arrivals[place] = {link_->mailbox().records[place].sequence, entry.parts,
                           static_cast<uint16_t>(entry.receive == nullptr ? 1 : 0)};
  }
}

/// Announces again the records that the sender has not read.
Status Receiver::resume(uint32_t rail, const Report& received) {
  if (rail != announced_by_) return {};
  if (announced_ - received.next_record > kRecords)
    return {Code::kMismatch, "the other end reports records that were never announced; is it of this version?"};
  for (; announced_ != received.next_record; --announced_) --announced_open_;
  return {};
}

Status Receiver::take(uint32_t immediate, uint32_t bytes) {
  const uint32_t place = Immediate::sequence(immediate) % kRecords;
  Entry& entry = entries_[place];
  const Record& record = link_->mailbox().records[place];
  if (entry.receive == nullptr || (record.sequence & 0xffff) != Immediate::sequence(immediate))
    return {Code::kMismatch, "data for a receive that is not announced; are both plugins of one version?"};
  if ((immediate & Immediate::kTooLong) != 0) {
    refuse(entry, place);
    return {};
  }
  entry.parts = static_cast<uint16_t>(entry.parts | 1u << Immediate::part(immediate));
  entry.bytes += bytes;
  if (static_cast<uint32_t>(std::popcount(entry.parts)) == Immediate::parts(immediate)) finish(entry);
  return {};
}

void Receiver::refuse(Entry& entry, uint32_t place) {
  const Record& record = link_->mailbox().records[place];
  entry.receive->failure = {
      Code::kMismatch, fmt::format("a message of {} bytes on {} is longer than the {} bytes of its receive (tag {})",
                                   link_->mailbox().lengths[place], link_->ends(), record.bytes, record.tag)};
  finish(entry);
}

void Receiver::finish(Entry& entry) {
  entry.receive->arrived[entry.index] = entry.bytes;
  --entry.receive->open;
  entry.receive = nullptr;
  --announced_open_;
  --open_;
}

Status Receiver::test(sdk::Request& raw, bool& done, uint64_t* bytes) {
  auto& receive = static_cast<Receive&>(raw);
  if (!receive.used) return {Code::kFailedPrecondition, "the request is not outstanding"};
  if (receive.open > 0) progress();
  if (receive.open > 0) return link_->failure();
  receive.used = false;
  TUTTI_TRY(receive.failure);
  if (bytes != nullptr) std::copy_n(receive.arrived.begin(), receive.count, bytes);
  done = true;
  return {};
}

Status Receiver::flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
                       sdk::Request*& request) {
  const Flush mode = link_->shared().settings.flush;
  while (count > 0 && bytes[count - 1] == 0) --count;
  if (count == 0 || mode == Flush::kNever) return {};
  const uint32_t last = count - 1;
  TUTTI_ASSIGN(const Registered* const registered, find_registered(registrations[last], addresses[last], bytes[last]));
  if (registered->rails[0]->memory == TUTTI_MEMORY_HOST && mode == Flush::kAuto) return {};
  TUTTI_TRY(link_->failure());
  Receive* const flush = take_request();
  if (flush == nullptr) return {Code::kAgain, ""};
  flush->count = flush->open = 0;
  flush->failure = {};
  flush->used = true;
  request = flush;
  const auto id = static_cast<uint32_t>(flush - requests_.data());
  const uint64_t last_byte = reinterpret_cast<uint64_t>(addresses[last]) + bytes[last] - 1;
  for (uint32_t i = 0; i < link_->rails().size(); ++i) {
    Rail& rail = link_->rail(i);
    if (rail.state() != Rail::State::kLive) continue;
    const Status posted = rail.post_flush(link_->shared().settings, work_number(Work::kFlush, id), last_byte,
                                          registered->rails[i]->region->rkey);
    if (!posted.ok()) link_->fail(posted);
    ++flush->open;
  }
  return {};
}

}  // namespace tutti::net_ib
