// SPDX-License-Identifier: Apache-2.0
#include "sender.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "memory.h"

namespace tutti::net_ib {

Sender::Sender(std::unique_ptr<Link> link) : link_(std::move(link)) {
  for (Send& request : requests_) request.connection = this;
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
  TUTTI_ASSIGN(const uint32_t key, key_of(registration, address, bytes, false));
  TUTTI_TRY(check_size(*link_, bytes));
  Send* const send = take_request();
  if (send == nullptr) return {};
  send->address = reinterpret_cast<uint64_t>(address);
  send->bytes = bytes;
  send->tag = tag;
  send->key = key;
  send->open = 0;
  send->posted = false;
  send->used = true;
  waiting_.push_back(send);
  request = send;
  if (const Status posted = post_matching(); !posted.ok()) link_->fail(posted);
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
  link_->poll([this](const ibv_wc& completion) { return take(completion); });
}

Status Sender::take(const ibv_wc& completion) {
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
    --requests_[completion.wr_id].open;
    return {};
  }
  TUTTI_TRY(link_->replenish(completion.qp_num));
  TUTTI_TRY(take_records(ntohl(completion.imm_data)));
  return post_matching();
}

Status Sender::take_records(uint32_t count) {
  for (; count > 0; --count, ++next_record_) {
    const Record& record = link_->board().records[next_record_ % kRecords];
    if (record.sequence != next_record_ || records_.size() >= kRecords)
      return {Code::kMismatch, "the other end announces receives in a wrong order; are both plugins of one version?"};
    records_.push_back(record);
  }
  return {};
}

Status Sender::post_matching() {
  for (auto send = waiting_.begin(); send != waiting_.end() && !records_.empty();) {
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
  if (send.bytes > record.bytes) return report_too_long(send, record);
  std::vector<QueuePair>& pairs = link_->queue_pairs();
  const auto id = static_cast<uint64_t>(&send - requests_.data());
  const bool split = send.bytes >= link_->shared().settings.split_bytes;
  const Parts parts(send.bytes, split ? static_cast<uint32_t>(pairs.size()) : 1);
  send.posted = true;
  send.open = parts.count();
  for (uint32_t i = 0; i < parts.count(); ++i) {
    const Local from{send.address + parts.begin(i), parts.bytes(i), send.key};
    TUTTI_TRY(pairs[i].post_write(id, from, record.address + parts.begin(i), record.key,
                                  Immediate::make(record.sequence, parts.count())));
  }
  return {};
}

/// The receive fails, and its error names the length; the send itself is done.
Status Sender::report_too_long(Send& send, const Record& record) {
  uint64_t& length = link_->board().lengths[record.sequence % kRecords];
  length = send.bytes;
  send.posted = true;
  send.open = 1;
  const uint64_t place = link_->peer().board + offsetof(Board, lengths) + record.sequence % kRecords * sizeof length;
  return link_->queue_pairs().front().post_write(
      static_cast<uint64_t>(&send - requests_.data()),
      {reinterpret_cast<uint64_t>(&length), sizeof length, link_->board_key()}, place, link_->peer().board_key,
      Immediate::make(record.sequence, 1) | Immediate::kTooLong);
}

}  // namespace tutti::net_ib
