// SPDX-License-Identifier: Apache-2.0
#include "sender.h"

#include <algorithm>
#include <cstddef>

#include "memory.h"

namespace tutti::net_ib {
namespace {

constexpr uint64_t kOneRail = 4096;  // messages up to this size all take the first rail

/// The value of a work request: a request, and a part of its message.
constexpr uint32_t value_for(uint64_t request, uint32_t part) {
  return static_cast<uint32_t>(request) | part << 16;
}
constexpr uint32_t request_of(uint32_t value) {
  return value & 0xffff;
}
constexpr uint32_t part_of(uint32_t value) {
  return value >> 16;
}

}  // namespace

Sender::Sender(std::unique_ptr<Link> link) : link_(std::move(link)) {
  for (Send& request : requests_) request.connection = this;
  link_->start(*this);
}

Result<void*> Sender::register_memory(void* address, uint64_t bytes, uint32_t memory) {
  return register_range(*link_, address, bytes, memory);
}
Result<void*> Sender::register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) {
  return net_ib::register_dmabuf(*link_, address, bytes, offset, fd);
}
Status Sender::deregister_memory(void* registration) {
  return deregister(*link_, registration);
}

Status Sender::recv(uint32_t /*count*/, void* const* /*addresses*/, const uint64_t* /*bytes*/, const uint32_t* /*tags*/,
                    void* const* /*registrations*/, sdk::Request*& /*request*/) {
  return {Code::kInvalidArgument, "this connection only sends"};
}

Sender::Send* Sender::take_request() {
  const auto free = std::find_if(requests_.begin(), requests_.end(), [](const Send& request) { return !request.used; });
  return free == requests_.end() ? nullptr : free;
}

Status Sender::send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) {
  if (records_.empty()) progress();
  TUTTI_TRY(link_->failure());
  TUTTI_ASSIGN(const Registered* const registered, find_registered(registration, address, bytes));
  TUTTI_TRY(check_size(*link_, bytes));
  Send* const send = take_request();
  if (send == nullptr) return {};
  send->address = reinterpret_cast<uint64_t>(address);
  send->bytes = bytes;
  send->tag = tag;
  send->registered = registered;
  send->open = 0;
  send->posted = false;
  send->used = true;
  waiting_.push_back(send);
  request = send;
  if (const Status posted = post_all(); !posted.ok()) link_->fail(posted);
  return {};
}

Status Sender::test(sdk::Request& raw, bool& done, uint64_t* /*bytes*/) {
  auto& send = static_cast<Send&>(raw);
  if (!send.used) return {Code::kFailedPrecondition, "the request is not outstanding"};
  if (!send.done()) progress();
  done = send.done();
  if (!done) return link_->failure();
  send.used = false;
  return {};
}

void Sender::progress() {
  link_->poll();
  if (!link_->failure().ok()) return;
  if (const Status posted = post_all(); !posted.ok()) link_->fail(posted);
}

/// So many records have arrived.
Status Sender::take(uint32_t count, uint32_t /*bytes*/) {
  for (; count > 0; --count, ++next_record_) {
    const Record& record = link_->mailbox().records[next_record_ % kRecords];
    if (record.sequence != next_record_ || records_.size() >= kRecords)
      return {Code::kMismatch, "the other end announces receives in a wrong order; are both plugins of one version?"};
    records_.push_back(record);
  }
  return {};
}

void Sender::complete(Work work, uint32_t value) {
  if (work == Work::kData) --requests_[request_of(value)].open;
}

void Sender::abandon(uint32_t rail, Work work, uint32_t value) {
  if (work == Work::kData) undecided_.push_back({rail, value});
}

void Sender::report(Report& out) const {
  out.next_record = next_record_;
}

Status Sender::resume(uint32_t rail, const Report& received) {
  for (const Undecided& one : undecided_) {
    if (one.rail != rail) continue;
    Send& send = requests_[request_of(one.value)];
    const Report::Arrival& arrival = received.arrivals[send.record.sequence % kRecords];
    const auto later = static_cast<int32_t>(arrival.sequence - send.record.sequence);
    if (later < 0) return {Code::kMismatch, "the other end reports receives that are too old; is it of this version?"};
    if (later > 0 || arrival.whole != 0 || (arrival.parts >> part_of(one.value) & 1) != 0) {
      --send.open;
    } else {
      repeated_.push_back(one.value);
    }
  }
  std::erase_if(undecided_, [&](const Undecided& one) { return one.rail == rail; });
  return {};
}

Status Sender::post_all() {
  while (!repeated_.empty() && link_->has_room()) {
    Send& send = requests_[request_of(repeated_.front())];
    const auto& queue_pairs = link_->queue_pairs();
    TUTTI_TRY(post_part(queue_pairs[repeated_.size() % queue_pairs.size()], send, part_of(repeated_.front())));
    repeated_.pop_front();
  }
  return repeated_.empty() && !waiting_.empty() ? post_matching() : Status();
}

Status Sender::post_matching() {
  for (auto send = waiting_.begin(); send != waiting_.end() && !records_.empty() && link_->has_room();) {
    const auto record =
        std::find_if(records_.begin(), records_.end(), [&](const Record& one) { return one.tag == (*send)->tag; });
    if (record == records_.end()) {
      ++send;
      continue;
    }
    TUTTI_TRY(post(**send, *record));
    records_.erase(record);
    send = waiting_.erase(send);
  }
  return {};
}

Status Sender::post(Send& send, const Record& record) {
  const std::vector<Link::QueuePairRef>& queue_pairs = link_->queue_pairs();
  send.record = record;
  send.posted = true;
  if (send.bytes > record.bytes || send.bytes < link_->shared().settings.split_bytes || queue_pairs.size() == 1) {
    send.parts = send.open = 1;
    const uint32_t rails = send.bytes > kOneRail ? link_->live_rails() : 1;  // the first pairs are on different rails
    return post_part(queue_pairs[record.sequence % rails], send, 0);
  }
  send.parts = static_cast<uint32_t>(queue_pairs.size());
  send.open = Parts(send.bytes, send.parts).count();
  for (uint32_t i = 0; i < send.open; ++i) TUTTI_TRY(post_part(queue_pairs[i], send, i));
  return {};
}

Status Sender::post_part(const Link::QueuePairRef& queue_pair, Send& send, uint32_t part) {
  const Record& record = send.record;
  if (send.bytes > record.bytes) return report_too_long(queue_pair, send);
  const Parts parts(send.bytes, send.parts);
  const Registration* const memory = send.registered == nullptr ? nullptr : &*send.registered->rails[queue_pair.rail];
  const uint32_t key = memory == nullptr ? 0 : memory->region->lkey;
  const bool on_gpu = memory != nullptr && memory->memory != TUTTI_MEMORY_HOST;
  const auto request = static_cast<uint64_t>(&send - requests_.data());
  return link_->write(queue_pair, Work::kData, value_for(request, part),
                      {send.address + parts.begin(part), parts.bytes(part), key, on_gpu},
                      record.address + parts.begin(part), record.keys[queue_pair.rail],
                      Immediate::make(record.sequence, part, parts.count()));
}

/// The receive fails, and its error names the length; the send itself is done.
Status Sender::report_too_long(const Link::QueuePairRef& queue_pair, Send& send) {
  const uint32_t place = send.record.sequence % kRecords;
  uint64_t& length = link_->mailbox().lengths[place];
  length = send.bytes;
  const uint64_t offset = offsetof(RdmaMailbox, lengths) + place * sizeof length;
  const auto request = static_cast<uint64_t>(&send - requests_.data());
  return link_->write_mailbox(queue_pair, Work::kData, value_for(request, 0), offset, sizeof length, offset,
                              Immediate::make(send.record.sequence, 0, 1) | Immediate::kTooLong);
}

}  // namespace tutti::net_ib
