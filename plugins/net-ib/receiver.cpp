// SPDX-License-Identifier: Apache-2.0
#include "receiver.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "memory.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

constexpr uint32_t kMostWrites = 64;             // of records at once
constexpr uint64_t kRecordWrite = ~uint64_t{0};  // work request number; others are those of requests

}  // namespace

Receiver::Receiver(std::unique_ptr<Link> link) : link_(std::move(link)) {
  for (Receive& request : requests_) request.connection = this;
}

/// The loop's queue pair goes before its memory.
Receiver::~Receiver() {
  if (loop_ == nullptr) return;
  Registration* const memory = loop_->memory;
  { const QueuePair gone = std::move(loop_->pair); }
  if (memory != nullptr) link_->port().device->registrations().remove(memory);
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
  std::array<uint32_t, kMaxGroup> keys{};
  for (uint32_t i = 0; i < count; ++i) {
    TUTTI_ASSIGN(keys[i], key_of(registrations[i], addresses[i], bytes[i], true));
  }
  Receive* const receive = take_request();
  if (receive == nullptr || !has_room(count)) return {};
  receive->used = true;
  receive->count = receive->open = count;
  receive->arrived.fill(0);
  receive->failure = {};
  for (uint32_t i = 0; i < count; ++i) add_entry(*receive, i, addresses[i], bytes[i], keys[i], tags[i]);
  request = receive;
  if (const Status announced = announce(); !announced.ok()) link_->fail(announced);
  return {};
}

void Receiver::add_entry(Receive& receive, uint32_t index, void* address, uint64_t bytes, uint32_t key, uint32_t tag) {
  const uint32_t place = next_ % kRecords;
  entries_[place] = {&receive, index, 0, 0};
  link_->board().records[place] = {reinterpret_cast<uint64_t>(address), bytes, key, tag, next_, 0};
  one_tag_ = open_ == 0 || (one_tag_ && tag == tag_);
  tag_ = tag;
  ++open_;
  ++next_;
}

/// With several tags, a sender may wait for the very receive that is not announced.
bool Receiver::may_wait() const {
  return one_tag_ && next_ - announced_ < announced_open_;
}

/// One write for all records up to the end of the board.
Status Receiver::announce() {
  while (announced_ != next_ && !may_wait() && writes_ < kMostWrites) {
    const uint32_t place = announced_ % kRecords;
    const uint32_t count = std::min(next_ - announced_, kRecords - place);
    const uint64_t offset = offsetof(Board, records) + place * sizeof(Record);
    const Local from{reinterpret_cast<uint64_t>(&link_->board()) + offset,
                     static_cast<uint32_t>(count * sizeof(Record)), link_->board_key()};
    TUTTI_TRY(link_->queue_pairs().front().post_write(kRecordWrite, from, link_->peer().board + offset,
                                                      link_->peer().board_key, count));
    announced_ += count;
    announced_open_ += count;
    ++writes_;
  }
  return {};
}

void Receiver::progress() {
  link_->poll([this](const ibv_wc& completion) { return take(completion); });
  if (!link_->failure().ok()) return;
  if (const Status announced = announce(); !announced.ok()) link_->fail(announced);
}

Status Receiver::take(const ibv_wc& completion) {
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    TUTTI_TRY(link_->replenish(completion.qp_num));
    return take_part(completion);
  }
  if (completion.wr_id == kRecordWrite) {
    --writes_;
  } else {
    --requests_[completion.wr_id].open;
  }
  return {};
}

Status Receiver::take_part(const ibv_wc& completion) {
  const uint32_t immediate = ntohl(completion.imm_data);
  const uint32_t place = Immediate::sequence(immediate) % kRecords;
  Entry& entry = entries_[place];
  const Record& record = link_->board().records[place];
  const uint32_t parts = Immediate::parts(immediate);
  if (entry.receive == nullptr || (record.sequence & 0xffff) != Immediate::sequence(immediate) || parts == 0) {
    return {Code::kMismatch, "data for a receive that is not announced; are both plugins of one version?"};
  }
  if ((immediate & Immediate::kTooLong) != 0) {
    refuse(entry, place);
    return {};
  }
  entry.bytes += completion.byte_len;
  if (++entry.parts == parts) finish(entry);
  return {};
}

void Receiver::refuse(Entry& entry, uint32_t place) {
  const Record& record = link_->board().records[place];
  entry.receive->failure = {
      Code::kMismatch, fmt::format("a message of {} bytes on {} is longer than the {} bytes of its receive (tag {})",
                                   link_->board().lengths[place], link_->ends(), record.bytes, record.tag)};
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

Status Receiver::make_loop() {
  auto loop = std::make_unique<Loop>();
  TUTTI_ASSIGN(loop->pair,
               QueuePair::create(link_->port(), link_->shared().settings, link_->queue(), {Link::kSends, 1}));
  Endpoint self = link_->endpoint();
  TUTTI_TRY(loop->pair.connect(link_->port(), link_->shared().settings, self, loop->pair.number(), self.psn));
  TUTTI_ASSIGN(loop->memory,
               link_->port().device->registrations().add(&loop->byte, sizeof loop->byte, TUTTI_MEMORY_HOST, false));
  loop_ = std::move(loop);
  return {};
}

Status Receiver::flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
                       sdk::Request*& request) {
  const Flush mode = link_->shared().settings.flush;
  while (count > 0 && bytes[count - 1] == 0) --count;
  if (count == 0 || mode == Flush::kNever) return {};
  const uint32_t last = count - 1;
  const auto* const registration = static_cast<const Registration*>(registrations[last]);
  TUTTI_ASSIGN(const uint32_t key, key_of(registrations[last], addresses[last], bytes[last], true));
  if (registration->memory == TUTTI_MEMORY_HOST && mode == Flush::kAuto) return {};
  TUTTI_TRY(link_->failure());
  if (loop_ == nullptr) TUTTI_TRY(make_loop());
  Receive* const flush = take_request();
  if (flush == nullptr) return {Code::kAgain, ""};
  flush->count = 0;
  flush->open = 1;
  flush->failure = {};
  flush->used = true;
  request = flush;
  const auto id = static_cast<uint64_t>(flush - requests_.data());
  const uint64_t from = reinterpret_cast<uint64_t>(addresses[last]) + bytes[last] - 1;
  const Status posted =
      loop_->pair.post_read(id, {reinterpret_cast<uint64_t>(&loop_->byte), 1, loop_->memory->region->lkey}, from, key);
  if (!posted.ok()) link_->fail(posted);
  return {};
}

}  // namespace tutti::net_ib
