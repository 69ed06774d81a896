// SPDX-License-Identifier: Apache-2.0
#include "transport/host_mailboxes.h"

#include <fmt/format.h>

#include <algorithm>

#include "progress/bell.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kBellBytes = 4096;  // the bell has a page of its own
constexpr std::chrono::milliseconds kSleepLimit{100};

}  // namespace

Result<std::unique_ptr<HostMailboxes>> HostMailboxes::create(uint32_t rank, std::vector<uint32_t> ranks,
                                                             uint32_t subjects) {
  const auto own = static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  std::unique_ptr<HostMailboxes> made(new HostMailboxes(std::move(ranks), own, subjects));
  const uint64_t bytes = uint64_t{subjects} * made->ranks_.size() * sizeof(Mailbox);
  TUTTI_ASSIGN(made->arenas_[own], memory::Arena::create(kBellBytes + bytes));
  progress::init_bell(made->bell_of(own));
  return made;
}

Status HostMailboxes::open(uint32_t rank, const memory::ArenaAddress& address) {
  auto opened = memory::Arena::open(address);
  if (!opened.ok()) return opened.status().with_context(fmt::format("rank {}", rank));
  arenas_[index_of(rank)] = *std::move(opened);
  return {};
}

uint32_t HostMailboxes::index_of(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

tutti_bell& HostMailboxes::bell_of(uint32_t index) const {
  return *reinterpret_cast<tutti_bell*>(arenas_[index].bytes().data());
}

HostMailboxes::Mailbox& HostMailboxes::mailbox(uint32_t writer, uint32_t reader, uint32_t subject) const {
  auto* const all = reinterpret_cast<Mailbox*>(arenas_[writer].bytes().data() + kBellBytes);
  return all[reader * subjects_ + subject];
}

void HostMailboxes::post_bytes(uint32_t reader, uint32_t subject, std::span<const std::byte> bytes) {
  const uint32_t to = index_of(reader);
  Mailbox& at = mailbox(own_, to, subject);
  std::memcpy(at.message.data(), bytes.data(), bytes.size());
  std::atomic_ref<uint32_t>(at.posted).store(1, std::memory_order_seq_cst);
  progress::ring(bell_of(to));
}

Status HostMailboxes::wait_bytes(uint32_t writer, uint32_t subject, base::Time deadline, std::span<std::byte> bytes) {
  Mailbox& at = mailbox(index_of(writer), own_, subject);
  const auto posted = [&] { return std::atomic_ref<uint32_t>(at.posted).load(std::memory_order_seq_cst) != 0; };
  while (!posted()) {
    progress::Sleeper announced(bell_of(own_));
    if (stopped_.load(std::memory_order_seq_cst)) return {Code::kAborted, "the communicator was aborted"};
    if (posted()) break;
    const base::Milliseconds left = base::left_until(deadline, kSleepLimit);
    if (left.count() == 0) {
      return {Code::kTimeout, fmt::format("rank {} has not answered rank {} in time; did it make the same call?",
                                          writer, ranks_[own_])};
    }
    announced.sleep(left);
  }
  std::memcpy(bytes.data(), at.message.data(), bytes.size());
  return {};
}

void HostMailboxes::stop() {
  stopped_.store(true, std::memory_order_seq_cst);
  progress::ring(bell_of(own_));
}

}  // namespace tutti::transport
