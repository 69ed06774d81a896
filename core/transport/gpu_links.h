// SPDX-License-Identifier: Apache-2.0
// The connections between GPUs: for each protocol, slots in memory of the receiving rank, and mailboxes. The kind of
// memory depends on the pair of ranks. GPUs that reach each other use memory of the GPU, other GPUs of a host use
// memory of the host. For a peer on a different host, both ranks have slots of their own, and relays move the messages
// between them (relay.h, line_relay.h). With net.failover or check.data, other relays do (carried_relay.h,
// carried_line_relay.h).
//
// A network that moves memory of GPUs may have a port that is nearer to a second GPU of the host. The slots of the CTAs
// that use this port may then lie in memory of the second GPU (PXN, lend()). This rank's GPU reads and writes the slots
// over NVLink. The peer does not notice.
//
// The order of messages on a connection is that of calls over one network. So the calls of each network have mailboxes,
// sequences and slots of their own, for all peers. The relays of a peer use the network of the call, or the network of
// the path to the peer.
//
// Mailboxes are small and exist from the start, for all peers. Slots are made when a call first needs them: the
// receiver offers them, the sender reaches for them and waits for the offer. Every rank offers before it reaches, so
// there is no deadlock. The number of CTAs that share a connection's slots is part of its name (rounded up to a power
// of two). So both ends know the slots of a call without asking, and a call of few CTAs takes little memory.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "transport/connection.h"
#include "transport/heap.h"
#include "transport/host_mailboxes.h"
#include "transport/line_relay.h"
#include "transport/net.h"
#include "transport/relay.h"
#include "tutti/plugin/cuda.h"

namespace tutti::transport {

/// Slots of one protocol from one rank to a second rank, for the launches of one kind of traffic with up to this number
/// of CTAs, whose calls go over one network.
struct GpuKey {
  uint32_t protocol = 0;
  Traffic traffic = Traffic::kCollective;
  uint32_t ctas = 1;  ///< CTAs of the launch; of a message: its stripes
  uint32_t peer = 0;  ///< rank
  /// Of a peer on a different host: the ports of CTA 0, CTA 1 and so on; CTAs beyond them begin with the first again.
  /// Empty: any ports. The ports count when the connections are made; they are not part of the name.
  std::span<const Ports> ports = {};
  uint32_t network = 0;  ///< network of the calls; the path to the peer may have a network of its own
};

/// One rank's end. One thread at a time, except stop().
class GpuLinks {
 public:
  static constexpr uint32_t kMaxHeaps = 5;
  static constexpr uint32_t kRelayed = 2;            ///< the kind for ranks of other hosts: seen by this rank alone
  static constexpr uint32_t kDirect = 3;             ///< memory of this rank's GPU, for slots that a network moves
  static constexpr uint32_t kDmabuf = 4;             ///< the same, for a network that takes descriptors of memory
  using Heaps = std::vector<std::shared_ptr<Heap>>;  ///< the kinds of memory, at most kMaxHeaps at create()
  /// The properties of a protocol's connections; without slots: no kernel runs it.
  struct Protocol {
    tutti_slot_layout layout{};
    std::array<uint32_t, kTrafficCount> max_ctas{};
    bool has_flags = false;  ///< flags in the data say that it is there (TUTTI_FLAGS_PAIRS)
    bool scatters = false;   ///< kernels find scattered slots (tutti_protocol_properties.scattered_slots)
  };
  struct Network {
    Net* net = nullptr;
    uint32_t heap = kRelayed;  ///< kind of memory of slots that it moves: kRelayed, kDirect or kDmabuf
  };
  struct Options {
    uint32_t rank = 0;
    std::vector<uint32_t> ranks;  ///< all
    std::vector<Protocol> protocols;
    std::vector<uint32_t> heaps;         ///< by rank: in which kind of memory it and this rank meet
    std::vector<Network> networks;       ///< to ranks of other hosts, with one engine
    Paths paths;                         ///< equal at both ends of a path
    uint32_t call_networks = 1;          ///< so many networks, the first ones, may be networks of calls
    std::chrono::nanoseconds timeout{};  ///< limit of the wait for a peer's offer
  };
  /// Collective over all ranks.
  static Result<std::unique_ptr<GpuLinks>> create(Options options, Heaps heaps, bootstrap::Bootstrap& bootstrap,
                                                  base::Time deadline);
  /// Sequences that the launches need, in memory of this GPU that is zero at first.
  static uint64_t sequence_count(const Options& options);

  const Protocol& protocol(uint32_t index) const { return options_.protocols[index]; }
  const Network& network(uint32_t index) const { return options_.networks[index]; }
  /// Fills the launch's data of its kind of traffic over a network: layout, and sequences among the sequences that
  /// begin at `sequences`. Returns the links, by rank, without slots.
  std::vector<tutti_cuda_link> describe(uint32_t protocol, uint32_t network, Traffic traffic,
                                        tutti_cuda_sequence* sequences, tutti_cuda_launch& launch) const;

  /// From now on, slots of messages by this port of the first network lie in `heap`, which the network accesses. This
  /// holds for protocols with scattered slots, if the network moves memory of GPUs. If `heap` has no memory, no slots
  /// lie there any more, with a warning; with `must`, the call that needs the slots fails. Several ports may have the
  /// same heap. Before the first offer.
  void lend(uint32_t port, std::shared_ptr<Heap> heap, bool must = false);

  /// Whether a network joins the peer and this rank.
  bool relayed(uint32_t peer) const { return options_.heaps[peer] == kRelayed; }
  /// The slots that a peer fills. The first call makes them and offers them to the peer. Does not wait.
  Result<const uint8_t*> offer(const GpuKey& key);
  /// The slots that this rank fills at a peer; at the first time waits until the peer has offered them.
  Result<uint8_t*> reach(const GpuKey& key);
  /// A table in memory of this GPU, with the slots of each CTA of a connection that was offered or reached. Null: the
  /// slots of all CTAs lie together.
  const tutti_cuda_slots* scattered(const GpuKey& key) const {
    return scattered_[key.peer * subjects() + subject(key)];
  }

  /// Ends waits, now and later. Any thread.
  void stop() { host_mailboxes_->stop(); }
  /// Gives back memory of peers, after its last use.
  void close();
  /// Bytes of this rank's memory for slots and mailboxes.
  uint64_t bytes() const;

 private:
  /// The offsets of a kind of traffic of a protocol, for the calls of one network.
  struct Offsets {
    uint64_t mailboxes = 0;  ///< mailboxes of a peer before the mailboxes of this kind of traffic
    uint64_t lengths = 0;    ///< lengths of a peer before the lengths of this kind of traffic
    uint64_t sequences = 0;  ///< before the sequences of this kind of traffic
  };
  /// Memory of this rank from which pieces are cut.
  struct Block {
    uint32_t heap = 0;
    Heap::Block memory;
    uint64_t bytes = 0;
    uint64_t used = 0;
  };
  /// How a peer finds a piece.
  struct Piece {
    uint64_t offset = 0;
    uint32_t block = 0;
    Heap::Address address;  ///< address of the block
  };
  /// The slots of one CTA in one direction.
  struct CtaSlots {
    uint8_t* data = nullptr;    ///< as this rank's GPU sees them
    uint8_t* on_net = nullptr;  ///< as Heap::for_network takes them
    uint32_t heap = 0;
  };
  static constexpr uint32_t kSizes = 7;  ///< sizes of connections: powers of two up to TUTTI_CUDA_MAX_CTAS

  GpuLinks(Options options, Heaps heaps);
  Status join(bootstrap::Bootstrap& bootstrap, base::Time deadline);
  Result<std::pair<uint8_t*, Piece>> cut(uint32_t heap, uint64_t bytes);
  Result<uint8_t*> find(uint32_t peer, const Piece& piece);
  Status relay(const GpuKey& key);
  uint32_t network_of(const GpuKey& key) const { return network_to(key.peer, key.network, options_.paths); }
  template <class Made>
  void start(const GpuKey& key, uint32_t cta, typename Made::Options options);
  void carry(const GpuKey& key, uint32_t cta, const CtaSlots& to, const CtaSlots& from);
  std::vector<uint32_t> heaps_of(const GpuKey& key, bool sends) const;
  Result<std::vector<CtaSlots>> cut_slots(const GpuKey& key, bool sends);
  Result<std::vector<CtaSlots>> cut_slots(const GpuKey& key, const std::vector<uint32_t>& heaps, uint32_t& heap);
  Result<const tutti_cuda_slots*> scatter(const GpuKey& key, std::span<const CtaSlots> to,
                                          std::span<const CtaSlots> from);
  template <class Options>
  Options common_options(const GpuKey& key, uint32_t cta) const;
  uint32_t direct_networks() const;
  Result<Relay::Options> relay_options(const GpuKey& key, uint32_t cta, const CtaSlots& to, const CtaSlots& from);
  LineRelay::Options line_relay_options(const GpuKey& key, uint32_t cta, const CtaSlots& to,
                                        const CtaSlots& from) const;
  uint32_t home_heap(const GpuKey& key) const;
  Ports ports_of(const GpuKey& key, uint32_t cta) const;
  Key connection(const GpuKey& key, uint32_t cta) const;
  uint64_t mailbox_of(const GpuKey& key, uint32_t cta) const;
  const uint64_t* lengths_of(const GpuKey& key, uint32_t cta) const;
  uint8_t* on_host(const Piece& piece) const { return blocks_[piece.block].memory.on_host + piece.offset; }
  uint32_t subjects() const { return static_cast<uint32_t>(offsets_.size()) * kSizes; }
  uint32_t subject(const GpuKey& key) const;
  size_t place(uint32_t protocol, uint32_t network, Traffic traffic) const {
    return (network * options_.protocols.size() + protocol) * kTrafficCount + static_cast<size_t>(traffic);
  }
  const Offsets& offsets(const GpuKey& key) const { return offsets_[place(key.protocol, key.network, key.traffic)]; }

  Options options_;
  Heaps heaps_;
  std::unique_ptr<HostMailboxes> host_mailboxes_;
  std::vector<Offsets> offsets_;  ///< by place()
  uint32_t channels_ = 0;         ///< CTAs of a launch, at most
  uint64_t mailboxes_ = 0;        ///< mailboxes of one peer
  std::vector<Block> blocks_;
  std::map<std::pair<uint32_t, uint32_t>, uint8_t*> opened_;  ///< by peer and block
  /// By rank: mailboxes in which the peer signals this rank, and in which this rank signals the peer.
  std::vector<tutti_cuda_mailbox*> of_, at_;
  std::vector<uint8_t*> offered_, reached_;         ///< by rank and subject; null: not yet
  std::vector<const tutti_cuda_slots*> scattered_;  ///< the same; null: the slots lie together
  std::map<uint32_t, uint32_t> lent_;               ///< heap by port of the first network
  bool must_lend_ = false;

  // To other hosts.
  /// By rank: mailboxes in which peers signal this rank, as addresses of the process.
  tutti_cuda_mailbox* told_ = nullptr;
  tutti_cuda_mailbox* telling_ = nullptr;  ///< mailboxes in which this rank signals peers
  uint64_t lengths_ = 0;                   ///< lengths of one peer
  uint64_t* lengths_on_host_ = nullptr;    ///< lengths of messages to peers, by rank
  uint64_t* lengths_on_gpu_ = nullptr;
  std::vector<uint32_t> direct_;  ///< by rank: bits 1 << network, of networks that move memory of its GPU
};

}  // namespace tutti::transport
