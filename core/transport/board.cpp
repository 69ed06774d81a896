// SPDX-License-Identifier: Apache-2.0
#include "transport/board.h"

#include <fmt/format.h>

#include <algorithm>

#include "progress/bell.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kBellBytes = 4096;  // the bell has a page of its own
constexpr std::chrono::milliseconds kSleepLimit{100};

}  // namespace

Result<std::unique_ptr<Board>> Board::create(uint32_t rank, std::vector<uint32_t> ranks, uint32_t subjects) {
  const auto own = static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  std::unique_ptr<Board> board(new Board(std::move(ranks), own, subjects));
  const uint64_t notices = uint64_t{subjects} * board->ranks_.size() * sizeof(Notice);
  TUTTI_ASSIGN(board->boards_[own], memory::Arena::create(kBellBytes + notices));
  progress::init_bell(board->bell_of(own));
  return board;
}

Status Board::open(uint32_t rank, const memory::ArenaAddress& address) {
  auto opened = memory::Arena::open(address);
  if (!opened.ok()) return opened.status().with_context(fmt::format("rank {}", rank));
  boards_[index_of(rank)] = *std::move(opened);
  return {};
}

uint32_t Board::index_of(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

tutti_bell& Board::bell_of(uint32_t index) const {
  return *reinterpret_cast<tutti_bell*>(boards_[index].bytes().data());
}

Board::Notice& Board::notice(uint32_t writer, uint32_t reader, uint32_t subject) const {
  auto* const all = reinterpret_cast<Notice*>(boards_[writer].bytes().data() + kBellBytes);
  return all[reader * subjects_ + subject];
}

void Board::post_bytes(uint32_t reader, uint32_t subject, std::span<const std::byte> bytes) {
  const uint32_t to = index_of(reader);
  Notice& at = notice(own_, to, subject);
  std::memcpy(at.text.data(), bytes.data(), bytes.size());
  std::atomic_ref<uint32_t>(at.posted).store(1, std::memory_order_seq_cst);
  progress::ring(bell_of(to));
}

Status Board::wait_bytes(uint32_t writer, uint32_t subject, base::Time deadline, std::span<std::byte> bytes) {
  Notice& at = notice(index_of(writer), own_, subject);
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
  std::memcpy(bytes.data(), at.text.data(), bytes.size());
  return {};
}

void Board::stop() {
  stopped_.store(true, std::memory_order_seq_cst);
  progress::ring(bell_of(own_));
}

}  // namespace tutti::transport
