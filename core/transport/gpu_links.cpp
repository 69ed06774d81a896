// SPDX-License-Identifier: Apache-2.0
#include "transport/gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <tuple>

namespace tutti::transport {
namespace {

constexpr uint64_t kGrain = 4096;             // of pieces
constexpr uint64_t kBlockBytes = 2ull << 20;  // as little as CUDA shares with other processes

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Of a lane: a collective's CTA has one; a message's has one for each peer and direction.
uint64_t tracks_of(const GpuLinks::Protocol& protocol, uint32_t lane, size_t ranks) {
  return protocol.max_ctas[lane] * (lane == static_cast<uint32_t>(Lane::kPointToPoint) ? 2 * ranks : 1);
}

}  // namespace

GpuLinks::GpuLinks(Options options, Heaps heaps) : options_(std::move(options)), heaps_(std::move(heaps)) {
  uint64_t tracks = 0;
  for (const Protocol& protocol : options_.protocols) {
    longest_.push_back(std::make_shared<std::atomic<uint64_t>>(0));
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
      places_.push_back({mailboxes_, tracks});
      mailboxes_ += protocol.max_ctas[lane];
      tracks += tracks_of(protocol, lane, options_.ranks.size());
    }
  }
  const size_t ranks = options_.ranks.size();
  of_.resize(ranks);
  at_.resize(ranks);
  offered_.resize(ranks * subjects());
  reached_.resize(ranks * subjects());
}

uint64_t GpuLinks::track_count(const Options& options) {
  uint64_t count = 0;
  for (const Protocol& protocol : options.protocols) {
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) count += tracks_of(protocol, lane, options.ranks.size());
  }
  return count;
}

Result<std::unique_ptr<GpuLinks>> GpuLinks::create(Options options, Heaps heaps, bootstrap::Bootstrap& bootstrap,
                                                   base::Time deadline) {
  std::unique_ptr<GpuLinks> links(new GpuLinks(std::move(options), std::move(heaps)));
  TUTTI_TRY(links->join(bootstrap, deadline));
  return links;
}

/// Every rank tells all others where its mailboxes and its notices are.
Status GpuLinks::join(bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  struct Hello {
    memory::ArenaAddress board;
    std::array<Piece, kMaxHeaps> mailboxes;
  };
  std::vector<uint32_t> here = options_.ranks;
  std::erase_if(here, [&](uint32_t rank) { return rank != options_.rank && relayed(rank); });
  TUTTI_ASSIGN(board_, Board::create(options_.rank, std::move(here), subjects()));
  Hello mine{board_->address(), {}};
  const uint64_t bytes = options_.ranks.size() * mailboxes_ * sizeof(tutti_cuda_mailbox);
  std::array<uint8_t*, kMaxHeaps> own{};
  std::pair<uint8_t*, Piece> telling{};  // other hosts
  for (const uint32_t peer : options_.ranks) {
    const uint32_t heap = options_.heaps[peer];
    if (peer == options_.rank || own[heap] != nullptr) continue;
    TUTTI_ASSIGN(std::tie(own[heap], mine.mailboxes[heap]), cut(heap, bytes));
    if (heap != kRelayed) continue;
    TUTTI_ASSIGN(telling, cut(heap, bytes));
    told_ = reinterpret_cast<tutti_cuda_mailbox*>(on_host(mine.mailboxes[heap]));
    telling_ = reinterpret_cast<tutti_cuda_mailbox*>(on_host(telling.second));
  }
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), deadline));
  for (const uint32_t peer : options_.ranks) {
    if (peer == options_.rank) continue;
    of_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(own[options_.heaps[peer]]) + peer * mailboxes_;
    if (relayed(peer)) {
      at_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(telling.first) + peer * mailboxes_;
      continue;
    }
    Hello hello;
    std::memcpy(&hello, all[peer].data(), std::min(all[peer].size(), sizeof hello));
    TUTTI_TRY(board_->open(peer, hello.board));
    TUTTI_ASSIGN(uint8_t* const at, find(peer, hello.mailboxes[options_.heaps[peer]]));
    at_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(at) + options_.rank * mailboxes_;
  }
  // Nobody closes its notices before everybody has mapped them.
  TUTTI_TRY(bootstrap.barrier(deadline));
  board_->seal();
  return {};
}

Result<std::pair<uint8_t*, GpuLinks::Piece>> GpuLinks::cut(uint32_t heap, uint64_t bytes) {
  bytes = round_up(bytes, kGrain);
  auto block = std::find_if(blocks_.begin(), blocks_.end(),
                            [&](const Block& b) { return b.heap == heap && b.bytes - b.used >= bytes; });
  if (block == blocks_.end()) {
    const uint64_t size = round_up(bytes, kBlockBytes);
    TUTTI_ASSIGN(const Heap::Block memory, heaps_[heap]->make(size));
    block = blocks_.insert(block, {heap, memory, size, 0});
  }
  const Piece piece{block->used, static_cast<uint32_t>(block - blocks_.begin()), block->memory.address};
  block->used += bytes;
  return std::pair(block->memory.data + piece.offset, piece);
}

Result<uint8_t*> GpuLinks::find(uint32_t peer, const Piece& piece) {
  uint8_t*& block = opened_[{peer, piece.block}];
  if (block == nullptr) {
    auto opened = heaps_[options_.heaps[peer]]->open(piece.address);
    if (!opened.ok()) return opened.status().with_context(fmt::format("memory of rank {}", peer));
    block = *opened;
  }
  return block + piece.offset;
}

void GpuLinks::describe(uint32_t protocol, Lane lane, tutti_cuda_track* tracks, tutti_cuda_launch& launch) const {
  const Place& at = place(protocol, lane);
  const tutti_slot_layout& layout = options_.protocols[protocol].layout;
  launch.rank = options_.rank;
  launch.rank_count = static_cast<uint32_t>(options_.ranks.size());
  launch.slot_count = layout.slot_count;
  launch.slot_stride = layout.slot_stride;
  launch.tracks = tracks + at.tracks;
  for (const uint32_t peer : options_.ranks) {
    if (peer == options_.rank) continue;
    launch.links[peer].of = of_[peer] + at.mailboxes;
    launch.links[peer].at = at_[peer] + at.mailboxes;
  }
}

uint32_t GpuLinks::subject(const GpuKey& key) const {
  // A relay knows a slot's CTA, but not by how many CTAs the launch has.
  const auto lane = static_cast<uint32_t>(key.lane);
  const uint32_t ctas = relayed(key.peer) ? options_.protocols[key.protocol].max_ctas[lane] : key.ctas;
  return (key.protocol * kLaneCount + lane) * kSizes + static_cast<uint32_t>(std::bit_width(ctas - 1));
}

Result<const uint8_t*> GpuLinks::offer(const GpuKey& key) {
  const uint32_t subject = GpuLinks::subject(key);
  uint8_t*& slots = offered_[key.peer * subjects() + subject];
  if (slots != nullptr) [[likely]]
    return slots;
  if (relayed(key.peer)) {
    TUTTI_ASSIGN(slots, relay_slots(key, &Relay::Memory::from));
    return slots;
  }
  const Protocol& protocol = options_.protocols[key.protocol];
  const uint64_t ctas = std::min(std::bit_ceil(key.ctas), protocol.max_ctas[static_cast<uint32_t>(key.lane)]);
  TUTTI_ASSIGN(const auto own,
               cut(options_.heaps[key.peer], ctas * protocol.layout.slot_count * protocol.layout.slot_stride));
  board_->post(key.peer, subject, own.second);
  slots = own.first;
  return slots;
}

Result<uint8_t*> GpuLinks::reach(const GpuKey& key) {
  const uint32_t subject = GpuLinks::subject(key);
  uint8_t*& slots = reached_[key.peer * subjects() + subject];
  if (slots != nullptr) [[likely]]
    return slots;
  if (relayed(key.peer)) {
    TUTTI_ASSIGN(slots, relay_slots(key, &Relay::Memory::to));
    return slots;
  }
  TUTTI_ASSIGN(const Piece piece, board_->wait<Piece>(key.peer, subject, base::time_in(options_.timeout)));
  TUTTI_ASSIGN(slots, find(key.peer, piece));
  return slots;
}

/// Slots for all CTAs of a lane, one after the other.
Result<uint8_t*> GpuLinks::relay_slots(const GpuKey& key, std::atomic<uint8_t*> Relay::Memory::*which) {
  const tutti_slot_layout& layout = options_.protocols[key.protocol].layout;
  const uint64_t bytes = layout.slot_count * layout.slot_stride;
  auto& relays = GpuLinks::relays(key);
  TUTTI_ASSIGN(const auto own, cut(kRelayed, relays.size() * bytes));
  uint8_t* at = on_host(own.second);
  for (const auto& relay : relays) {
    (relay->memory().*which).store(at, std::memory_order_release);
    at += bytes;
  }
  return own.first;
}

/// Of all CTAs of a lane to one peer; made at the first time.
std::vector<std::shared_ptr<Relay>>& GpuLinks::relays(const GpuKey& key) {
  const Protocol& protocol = options_.protocols[key.protocol];
  const auto lane = static_cast<uint32_t>(key.lane);
  auto& relays = relays_[{key.peer, key.protocol * kLaneCount + lane}];
  if (!relays.empty()) return relays;
  for (uint32_t cta = 0; cta < protocol.max_ctas[lane]; ++cta) {
    const Key connection{key.peer, key.lane, cta, key.protocol};
    const auto& relay = relays.emplace_back(std::make_shared<Relay>(
        protocol.layout, options_.net->sender(connection), options_.net->receiver(connection), longest_[key.protocol]));
    const uint64_t mailbox = key.peer * mailboxes_ + place(key.protocol, key.lane).mailboxes + cta;
    relay->memory().at = telling_ + mailbox;
    relay->memory().of = told_ + mailbox;
    relay->memory().owner = heaps_[kRelayed];  // the engine may outlive this
    options_.net->engine().add(relay);
  }
  return relays;
}

void GpuLinks::expect(uint32_t protocol, uint64_t slice_bytes) {
  std::atomic<uint64_t>& longest = *longest_[protocol];
  if (longest.load(std::memory_order_relaxed) < slice_bytes) longest.store(slice_bytes, std::memory_order_release);
}

void GpuLinks::close() {
  for (const auto& heap : heaps_) heap->close();
}

uint64_t GpuLinks::bytes() const {
  uint64_t sum = 0;
  for (const Block& block : blocks_) sum += block.bytes;
  return sum;
}

}  // namespace tutti::transport
