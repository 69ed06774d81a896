// SPDX-License-Identifier: Apache-2.0
#include "transport/gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <tuple>

#include "log/log.h"
#include "transport/carried_line_relay.h"
#include "transport/carried_relay.h"
#include "transport/carried_task.h"
#include "transport/failover.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kGrain = 4096;             // of pieces
constexpr uint64_t kBlockBytes = 2ull << 20;  // as little as CUDA shares with other processes

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Sequences of one kind of traffic: the CTA of a collective has one sequence; a message's CTA has one for each peer
/// and direction.
uint64_t sequences_of(const GpuLinks::Protocol& protocol, uint32_t traffic, size_t ranks) {
  return protocol.max_ctas[traffic] * (traffic == static_cast<uint32_t>(Traffic::kPointToPoint) ? 2 * ranks : 1);
}

}  // namespace

GpuLinks::GpuLinks(Options options, Heaps heaps) : options_(std::move(options)), heaps_(std::move(heaps)) {
  uint64_t sequences = 0;
  const auto add = [&](const Protocol& protocol, uint32_t traffic) {
    offsets_.push_back({mailboxes_, lengths_, sequences});
    mailboxes_ += protocol.max_ctas[traffic];
    lengths_ += uint64_t{protocol.max_ctas[traffic]} * protocol.layout.slot_count;
    sequences += sequences_of(protocol, traffic, options_.ranks.size());
    channels_ = std::max(channels_, protocol.max_ctas[traffic]);
  };
  for (uint32_t network = 0; network < options_.call_networks; ++network) {
    for (const Protocol& protocol : options_.protocols) {
      for (uint32_t traffic = 0; traffic < kTrafficCount; ++traffic) add(protocol, traffic);
    }
  }
  const size_t ranks = options_.ranks.size();
  of_.resize(ranks);
  at_.resize(ranks);
  direct_.resize(ranks);
  offered_.resize(ranks * subjects());
  reached_.resize(ranks * subjects());
  scattered_.resize(ranks * subjects());
}

uint64_t GpuLinks::sequence_count(const Options& options) {
  uint64_t count = 0;
  for (const Protocol& protocol : options.protocols) {
    for (uint32_t traffic = 0; traffic < kTrafficCount; ++traffic)
      count += sequences_of(protocol, traffic, options.ranks.size());
  }
  return count * options.call_networks;
}

Result<std::unique_ptr<GpuLinks>> GpuLinks::create(Options options, Heaps heaps, bootstrap::Bootstrap& bootstrap,
                                                   base::Time deadline) {
  std::unique_ptr<GpuLinks> links(new GpuLinks(std::move(options), std::move(heaps)));
  TUTTI_TRY(links->join(bootstrap, deadline));
  return links;
}

/// Every rank tells all ranks the addresses of its mailboxes in GPU memory and in host memory.
Status GpuLinks::join(bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  struct Hello {
    memory::ArenaAddress host_mailboxes;
    std::array<Piece, kMaxHeaps> mailboxes;
    uint32_t direct = 0;
  };
  std::vector<uint32_t> here = options_.ranks;
  std::erase_if(here, [&](uint32_t rank) { return rank != options_.rank && relayed(rank); });
  TUTTI_ASSIGN(host_mailboxes_, HostMailboxes::create(options_.rank, std::move(here), subjects()));
  Hello mine{host_mailboxes_->address(), {}, direct_networks()};
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
    TUTTI_ASSIGN(const auto lengths, cut(heap, options_.ranks.size() * lengths_ * sizeof(uint64_t)));
    lengths_on_gpu_ = reinterpret_cast<uint64_t*>(lengths.first);
    lengths_on_host_ = reinterpret_cast<uint64_t*>(on_host(lengths.second));
  }
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), deadline));
  for (const uint32_t peer : options_.ranks) {
    if (peer == options_.rank) continue;
    of_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(own[options_.heaps[peer]]) + peer * mailboxes_;
    Hello hello;
    std::memcpy(&hello, all[peer].data(), std::min(all[peer].size(), sizeof hello));
    if (relayed(peer)) {
      at_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(telling.first) + peer * mailboxes_;
      direct_[peer] = hello.direct;
      continue;
    }
    TUTTI_TRY(host_mailboxes_->open(peer, hello.host_mailboxes));
    TUTTI_ASSIGN(uint8_t* const at, find(peer, hello.mailboxes[options_.heaps[peer]]));
    at_[peer] = reinterpret_cast<tutti_cuda_mailbox*>(at) + options_.rank * mailboxes_;
  }
  // No rank closes its mailboxes before all ranks have mapped them.
  TUTTI_TRY(bootstrap.barrier(deadline));
  host_mailboxes_->seal();
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

std::vector<tutti_cuda_link> GpuLinks::describe(uint32_t protocol, uint32_t network, Traffic traffic,
                                                tutti_cuda_sequence* sequences, tutti_cuda_launch& launch) const {
  const Offsets& at = offsets_[place(protocol, network, traffic)];
  const tutti_slot_layout& layout = options_.protocols[protocol].layout;
  launch.rank = options_.rank;
  launch.rank_count = static_cast<uint32_t>(options_.ranks.size());
  launch.slot_count = layout.slot_count;
  launch.slot_stride = layout.slot_stride;
  launch.sequences = sequences + at.sequences;
  std::vector<tutti_cuda_link> links(options_.ranks.size());
  for (const uint32_t peer : options_.ranks) {
    if (peer == options_.rank) continue;
    links[peer].of = of_[peer] + at.mailboxes;
    links[peer].at = at_[peer] + at.mailboxes;
    links[peer].lengths = relayed(peer) ? lengths_on_gpu_ + peer * lengths_ + at.lengths : nullptr;
  }
  return links;
}

void GpuLinks::lend(uint32_t port, std::shared_ptr<Heap> heap, bool must) {
  must_lend_ = must;
  const auto known = std::find(heaps_.begin(), heaps_.end(), heap);
  lent_[port] = static_cast<uint32_t>(known - heaps_.begin());
  if (known == heaps_.end()) heaps_.push_back(std::move(heap));
}

uint32_t GpuLinks::subject(const GpuKey& key) const {
  // A relay knows a slot's CTA, but not by how many CTAs the launch has.
  const auto traffic = static_cast<uint32_t>(key.traffic);
  const uint32_t ctas = relayed(key.peer) ? options_.protocols[key.protocol].max_ctas[traffic] : key.ctas;
  const auto before = static_cast<uint32_t>(place(key.protocol, key.network, key.traffic));
  return before * kSizes + static_cast<uint32_t>(std::bit_width(ctas - 1));
}

Result<const uint8_t*> GpuLinks::offer(const GpuKey& key) {
  const uint32_t subject = GpuLinks::subject(key);
  uint8_t*& slots = offered_[key.peer * subjects() + subject];
  if (slots != nullptr) [[likely]]
    return slots;
  if (relayed(key.peer)) {
    TUTTI_TRY(relay(key));
    return slots;
  }
  const Protocol& protocol = options_.protocols[key.protocol];
  const uint64_t ctas = std::min(std::bit_ceil(key.ctas), protocol.max_ctas[static_cast<uint32_t>(key.traffic)]);
  TUTTI_ASSIGN(const auto own,
               cut(options_.heaps[key.peer], ctas * protocol.layout.slot_count * protocol.layout.slot_stride));
  host_mailboxes_->post(key.peer, subject, own.second);
  slots = own.first;
  return slots;
}

Result<uint8_t*> GpuLinks::reach(const GpuKey& key) {
  const uint32_t subject = GpuLinks::subject(key);
  uint8_t*& slots = reached_[key.peer * subjects() + subject];
  if (slots != nullptr) [[likely]]
    return slots;
  if (relayed(key.peer)) {
    TUTTI_TRY(relay(key));
    return slots;
  }
  TUTTI_ASSIGN(const Piece piece, host_mailboxes_->wait<Piece>(key.peer, subject, base::time_in(options_.timeout)));
  TUTTI_ASSIGN(slots, find(key.peer, piece));
  return slots;
}

/// Makes the slots of both directions for all CTAs of one kind of traffic, and a relay for each CTA.
Status GpuLinks::relay(const GpuKey& key) {
  const Protocol& protocol = options_.protocols[key.protocol];
  const Network& network = options_.networks[network_of(key)];
  TUTTI_ASSIGN(const std::vector<CtaSlots> to, cut_slots(key, true));
  TUTTI_ASSIGN(const std::vector<CtaSlots> from, cut_slots(key, false));
  TUTTI_ASSIGN(const tutti_cuda_slots* const scattered, scatter(key, to, from));
  const bool has_relays = !network.net->only_slots() && !protocol.has_flags;
  std::vector<Relay::Options> relays;  // all of them before the first starts: a failure leaves no relay behind
  for (uint32_t cta = 0; has_relays && cta < to.size(); ++cta) {
    TUTTI_ASSIGN(relays.emplace_back(), relay_options(key, cta, to[cta], from[cta]));
  }
  for (uint32_t cta = 0; cta < to.size(); ++cta) {
    if (network.net->only_slots()) {
      carry(key, cta, to[cta], from[cta]);
    } else if (protocol.has_flags) {
      start<LineRelay>(key, cta, line_relay_options(key, cta, to[cta], from[cta]));
    } else {
      start<Relay>(key, cta, std::move(relays[cta]));
    }
  }
  const size_t index = key.peer * subjects() + subject(key);
  reached_[index] = to.front().data;
  offered_[index] = from.front().data;
  scattered_[index] = scattered;
  return {};
}

/// The kind of memory of slots for a peer on a different host, unless a second GPU lends memory.
uint32_t GpuLinks::home_heap(const GpuKey& key) const {
  return options_.protocols[key.protocol].has_flags ? kRelayed : options_.networks[network_of(key)].heap;
}

/// By CTA: the kind of memory of its slots in one direction. A port by which the peer reaches this rank is known if the
/// key names it.
std::vector<uint32_t> GpuLinks::heaps_of(const GpuKey& key, bool sends) const {
  const Protocol& protocol = options_.protocols[key.protocol];
  const uint32_t home = home_heap(key);
  std::vector<uint32_t> heaps(protocol.max_ctas[static_cast<uint32_t>(key.traffic)], home);
  if (lent_.empty() || !protocol.scatters || home == kRelayed || network_of(key) != 0) return heaps;
  for (uint32_t cta = 0; cta < heaps.size(); ++cta) {
    const uint32_t port =
        sends ? options_.networks[0].net->route(connection(key, cta)).device : ports_of(key, cta).receives_by;
    if (const auto lent = lent_.find(port); lent != lent_.end()) heaps[cta] = lent->second;
  }
  return heaps;
}

Result<std::vector<GpuLinks::CtaSlots>> GpuLinks::cut_slots(const GpuKey& key, bool sends) {
  for (;;) {
    uint32_t heap = 0;
    auto slots = cut_slots(key, heaps_of(key, sends), heap);
    if (slots.ok() || heap == home_heap(key)) return slots;
    if (must_lend_) return slots.status().with_context("net.pxn is on");
    log::warn("a second GPU lends no further memory, so messages pass through memory of the own GPU: {}",
              slots.status().text());
    std::erase_if(lent_, [&](const auto& lent) { return lent.second == heap; });
  }
}

/// Cuts the slots of CTAs, one piece from each kind of memory. Within a piece, the CTAs are in order. `heap`: after a
/// failure, the kind of memory that failed.
Result<std::vector<GpuLinks::CtaSlots>> GpuLinks::cut_slots(const GpuKey& key, const std::vector<uint32_t>& heaps,
                                                            uint32_t& heap) {
  const tutti_slot_layout& layout = options_.protocols[key.protocol].layout;
  const uint64_t bytes = layout.slot_count * layout.slot_stride;
  std::vector<CtaSlots> slots(heaps.size());
  // Lent memory comes first, because it may be missing.
  for (const uint32_t kind : std::set<uint32_t, std::greater<>>(heaps.begin(), heaps.end())) {
    heap = kind;
    const auto count = static_cast<uint64_t>(std::ranges::count(heaps, kind));
    TUTTI_ASSIGN(const auto piece, cut(kind, count * bytes));
    uint8_t* const on_net = kind == kRelayed ? on_host(piece.second) : piece.first;
    for (uint64_t cta = 0, before = 0; cta < heaps.size(); ++cta) {
      if (heaps[cta] != kind) continue;
      slots[cta] = {piece.first + before * bytes, on_net + before * bytes, kind};
      ++before;
    }
  }
  return slots;
}

/// Puts the places of scattered slots into memory of this GPU. Null: the slots lie together.
Result<const tutti_cuda_slots*> GpuLinks::scatter(const GpuKey& key, std::span<const CtaSlots> to,
                                                  std::span<const CtaSlots> from) {
  const auto lie_together = [](std::span<const CtaSlots> slots) {
    return std::ranges::all_of(slots, [&](const CtaSlots& one) { return one.heap == slots.front().heap; });
  };
  if (lie_together(to) && lie_together(from)) return nullptr;
  log::debug("slots for messages of rank {} and rank {} lie in memory of several GPUs", options_.rank, key.peer);
  std::vector<tutti_cuda_slots> places;
  for (size_t cta = 0; cta < to.size(); ++cta) places.push_back({to[cta].data, from[cta].data});
  const uint64_t bytes = places.size() * sizeof places.front();
  const uint32_t heap = home_heap(key);
  TUTTI_ASSIGN(const auto table, cut(heap, bytes));
  TUTTI_TRY(heaps_[heap]->write(table.first, places.data(), bytes));
  return reinterpret_cast<const tutti_cuda_slots*>(table.first);
}

template <class Made>
void GpuLinks::start(const GpuKey& key, uint32_t cta, typename Made::Options options) {
  Net& net = *options_.networks[network_of(key)].net;
  auto relay = std::make_shared<Made>(net, std::move(options));
  net.expect(connection(key, cta), relay);
  net.engine().add(std::move(relay));
}

/// The same over slots of the network.
void GpuLinks::carry(const GpuKey& key, uint32_t cta, const CtaSlots& to, const CtaSlots& from) {
  Net& net = *options_.networks[network_of(key)].net;
  const Net::Pair connections = net.pair(connection(key, cta));
  const auto fill = [&](auto& options) {
    options.to = to.on_net;
    options.from = from.on_net;
    options.out = &connections.sender->connection();
    options.in = &connections.receiver->connection();
  };
  std::unique_ptr<progress::Task> relay;
  if (options_.protocols[key.protocol].has_flags) {
    auto options = common_options<CarriedLineRelay::Options>(key, cta);
    fill(options);
    relay = std::make_unique<CarriedLineRelay>(std::move(options));
  } else {
    auto options = common_options<CarriedRelay::Options>(key, cta);
    fill(options);
    options.lengths = lengths_of(key, cta);
    relay = std::make_unique<CarriedRelay>(std::move(options));
  }
  net.engine().add(std::make_shared<CarriedTask>(connections, std::move(relay)));
}

/// The ports of a CTA. The ports of a key are those of the call's network.
Ports GpuLinks::ports_of(const GpuKey& key, uint32_t cta) const {
  const bool has_ports = !key.ports.empty() && network_of(key) == key.network;
  return has_ports ? key.ports[cta % key.ports.size()] : Ports();
}

/// The connection of a CTA with its counterpart at a peer on a different host. The network of a path also carries the
/// calls of other networks, whose channels come after its own.
Key GpuLinks::connection(const GpuKey& key, uint32_t cta) const {
  const Ports ports = ports_of(key, cta);
  return {key.peer, key.traffic, key.network * channels_ + cta, key.protocol, ports.device, ports.peer_device};
}

/// The index of a CTA's mailbox for a peer on a different host.
uint64_t GpuLinks::mailbox_of(const GpuKey& key, uint32_t cta) const {
  return key.peer * mailboxes_ + offsets(key).mailboxes + cta;
}

/// By slot of a CTA's connection to a peer on a different host.
const uint64_t* GpuLinks::lengths_of(const GpuKey& key, uint32_t cta) const {
  const uint64_t slots = options_.protocols[key.protocol].layout.slot_count;
  return lengths_on_host_ + key.peer * lengths_ + offsets(key).lengths + cta * slots;
}

/// The options that relays of all kinds have.
template <class Options>
Options GpuLinks::common_options(const GpuKey& key, uint32_t cta) const {
  const uint64_t mailbox = mailbox_of(key, cta);
  Options made;
  made.key = connection(key, cta);
  made.layout = options_.protocols[key.protocol].layout;
  made.at = telling_ + mailbox;
  made.of = told_ + mailbox;
  made.owner = std::make_shared<Heaps>(heaps_);  // the engine may outlive this
  return made;
}

LineRelay::Options GpuLinks::line_relay_options(const GpuKey& key, uint32_t cta, const CtaSlots& to,
                                                const CtaSlots& from) const {
  auto made = common_options<LineRelay::Options>(key, cta);
  made.to = to.on_net;
  made.from = from.on_net;
  return made;
}

/// Bits 1 << network, of the networks that move memory of this GPU.
uint32_t GpuLinks::direct_networks() const {
  uint32_t direct = 0;
  for (size_t network = 0; network < options_.networks.size(); ++network) {
    if (options_.networks[network].heap != kRelayed) direct |= 1u << network;
  }
  return direct;
}

Result<Relay::Options> GpuLinks::relay_options(const GpuKey& key, uint32_t cta, const CtaSlots& to,
                                               const CtaSlots& from) {
  auto made = common_options<Relay::Options>(key, cta);
  const uint64_t bytes = made.layout.slot_count * made.layout.slot_stride;
  const Network& network = options_.networks[network_of(key)];
  const bool is_direct = network.heap != kRelayed;
  const uint64_t capabilities = network.net->options().capabilities;
  TUTTI_ASSIGN(made.to, heaps_[to.heap]->for_network(to.on_net, bytes));
  TUTTI_ASSIGN(made.from, heaps_[from.heap]->for_network(from.on_net, bytes));
  made.lengths = lengths_of(key, cta);
  made.splits = is_direct || (direct_[key.peer] >> network_of(key) & 1) != 0;
  made.flushes = is_direct && (capabilities & TUTTI_NET_CAP_FLUSH) != 0;
  made.groups = (capabilities & TUTTI_NET_CAP_GROUPED_RECV) != 0;
  return made;
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
