// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "backend/cuda/kernel_fault.h"
#include "backend/cuda/messages.h"
#include "backend/cuda/programs.h"
#include "backend/cuda/registrations.h"
#include "backend/cuda/strand_room.h"
#include "backend/cuda/streams.h"
#include "backend/limits.h"
#include "bootstrap/exchange.h"
#include "bootstrap/process.h"
#include "device/cuda/dmabuf.h"
#include "device/cuda/lent_memory.h"
#include "log/log.h"
#include "plugin/loader.h"
#include "transport/direct.h"
#include "transport/p2p.h"
#include "transport/pinned.h"
#include "transport/staged.h"

namespace tutti::backend {
namespace {

using transport::GpuLinks;
using transport::Traffic;

// Stripes of one send or receive. Each has slots of its own at every peer. With many peers, half as many
// stripes must suffice; they still fill a link.
constexpr uint32_t kMaxStripes = 32;
constexpr uint32_t kMaxStripesOfMany = 16;
// CTAs that send, and CTAs that receive: this number fills all links of an H200. All CTAs of a launch run at the same
// time, and leave room for the launch of a second communicator, as two CTAs fit an SM.
constexpr uint32_t kMessageCtas = 32;
constexpr std::chrono::seconds kGoodbye{2};
constexpr uint32_t kP2pHeap = 0;
constexpr uint32_t kStagedHeap = 1;
constexpr uint32_t kManyRanks = 4;
constexpr uint64_t kSmallSlot = 16 << 10;
constexpr unsigned kQueues = 32;  // hardware queues of a GPU, at most

class CudaGpu : public Gpu {
 public:
  CudaGpu(const Options& options, bootstrap::Bootstrap& bootstrap) : options_(options), bootstrap_(bootstrap) {}

  ~CudaGpu() override {
    end_.emplace();
    // Other ranks' kernels may still store to this rank's memory: it is freed when all kernels have ended, or never.
    const cuda::DeviceScope scope(device_);
    if (leave().ok()) return;
    log::debug("a rank left without saying so: memory that its GPU may write to stays");
    static_cast<void>(links_.release());
    static_cast<void>(registrations_.release());
    static_cast<void>(programs_.release());  // with programs, links and scratch buffers
    static_cast<void>(new Kept{std::move(control_), std::move(sequences_), std::move(scratch_)});
  }

  Status open(const std::vector<tuner::Protocol>& protocols, base::Time deadline) {
    TUTTI_ASSIGN(device_, cuda::current_device());
    TUTTI_ASSIGN(std::unique_ptr<Streams> streams, GpuStreams::create());
    order_ = std::make_unique<StreamOrder>(std::move(streams));
    TUTTI_ASSIGN(control_, cuda::MappedMemory::create(sizeof(tutti_cuda_control)));
    control()->peer = TUTTI_CUDA_NO_PEER;
    TUTTI_ASSIGN(scratch_, cuda::DeviceMemory::create(device_, 2));
    GpuLinks::Options options;
    TUTTI_ASSIGN(options.heaps, meet_gpus(deadline));
    TUTTI_ASSIGN(strand_ctas_,
                 agree_on_strand_ctas(protocols, ranks_per_gpu_, share_of(TUTTI_CUDA_MAX_CTAS), bootstrap_, deadline));
    const uint32_t max_ctas = share_of(options_.max_channels);
    uint32_t max_stripes = options_.rank_count > kManyRanks ? kMaxStripesOfMany : kMaxStripes;
    // A network connection has the channels of collectives.
    if (has_networks()) max_stripes = std::min(max_stripes, options_.max_channels);
    options.rank = options_.rank;
    for (uint32_t rank = 0; rank < options_.rank_count; ++rank) options.ranks.push_back(rank);
    options.timeout = options_.timeout;
    for (uint32_t network = 0; network < nets().size(); ++network) {
      TUTTI_ASSIGN(const uint32_t heap, heap_of(network));
      options.networks.push_back({nets()[network].get(), heap});
    }
    options.paths = options_.fabric->paths();
    options.call_networks = options_.call_networks;
    for (const tuner::Protocol& protocol : protocols) {
      GpuLinks::Protocol& link = options.protocols.emplace_back();
      if ((protocol.properties.devices & TUTTI_DEVICE_CUDA) == 0) continue;
      TUTTI_ASSIGN(link.layout, layout_of(protocol, options_.slot_bytes));
      // Each peer has slots of its own: where there are many they are smaller.
      const bool many = options_.slot_bytes == 0 && options_.rank_count > kManyRanks;
      if (many && link.layout.slot_bytes > kSmallSlot) {
        TUTTI_ASSIGN(link.layout, layout_of(protocol, kSmallSlot));
      }
      if (has_networks() && (protocol.properties.links >> TUTTI_LINK_NETWORK & 1) != 0) {
        link.has_flags = protocol.properties.flags_in_data == TUTTI_FLAGS_PAIRS;
        link.scatters = protocol.properties.scattered_slots != 0;
        TUTTI_TRY(fit_networks(protocol.name, link));
      }
      const uint32_t most = link.layout.max_channels;
      link.max_ctas = {most > 0 ? std::min(most, max_ctas) : max_ctas, max_stripes};
    }
    TUTTI_ASSIGN(sequences_,
                 cuda::DeviceMemory::create(device_, GpuLinks::sequence_count(options) * sizeof(tutti_cuda_sequence)));
    registrations_ = std::make_unique<GpuRegistrations>(
        GpuRegistrations::Options{options_.rank, options_.rank_count, device_, all_p2p_ && one_host_}, bootstrap_);
    GpuLinks::Heaps heaps;
    heaps.push_back(std::make_unique<transport::P2pHeap>(device_));
    heaps.push_back(std::make_unique<transport::StagedHeap>());
    heaps.push_back(std::make_shared<transport::PinnedHeap>());
    for (const bool dmabuf : {false, true}) heaps.push_back(std::make_shared<transport::DirectHeap>(device_, dmabuf));
    TUTTI_ASSIGN(links_, GpuLinks::create(std::move(options), std::move(heaps), bootstrap_, deadline));
    return {};
  }

  int device() const override { return device_; }
  uint32_t link() const override { return all_p2p_ ? TUTTI_LINK_P2P : TUTTI_LINK_SHM; }

  std::vector<std::string> addresses() const override { return addresses_; }
  std::vector<uint32_t> strand_ctas() const override { return strand_ctas_; }

  std::string name() const override {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device_) != cudaSuccess) return "";
    return ranks_per_gpu_ == 1 ? properties.name : fmt::format("{} / {}", properties.name, ranks_per_gpu_);
  }

  Status set_detours(std::span<const Detour> detours) override {
    if (!has_networks() || options_.pxn == Use::kOff || (detours.empty() && all_p2p_)) return {};
    if (const std::string why_not = why_no_detours(); !why_not.empty()) return do_without("a second GPU", why_not);
    std::map<std::string, std::shared_ptr<transport::Heap>> lenders;  // by PCI address; null: it lends nothing
    for (const Detour& detour : detours) {
      const auto [lender, is_new] = lenders.try_emplace(detour.gpu);
      if (is_new) {
        TUTTI_ASSIGN(lender->second, borrow_from(detour.gpu));
      }
      if (lender->second == nullptr) continue;
      log::info("messages by port {} may pass through memory of GPU {}", name_of_port(detour.port), detour.gpu);
      links_->lend(detour.port, lender->second, options_.pxn == Use::kOn);
    }
    return {};
  }

  Status serve(const tuner::Selector& selector, const Plans& plans) override {
    const GpuPrograms::Options options{options_.rank,
                                       device_,
                                       static_cast<tutti_cuda_control*>(control_.on_device()),
                                       reinterpret_cast<tutti_cuda_sequence*>(sequences_.data()),
                                       static_cast<uint64_t>(options_.timeout.count()),
                                       share_of(TUTTI_CUDA_MAX_CTAS),
                                       share_of(message_ctas(), TUTTI_CUDA_MESSAGE_KINDS),
                                       is_limited(),
                                       ranks_per_gpu_ > 1,
                                       shares_context_};
    TUTTI_ASSIGN(programs_, GpuPrograms::create(options, selector, plans, *links_));
    messages_ = std::make_unique<GpuMessages>(options_.rank, *programs_);
    return {};
  }

  Result<std::optional<uint64_t>> register_buffer(void* buffer, uint64_t bytes, base::Time deadline) override {
    return registrations_->add(buffer, bytes, programs_->load_for_registered(), deadline);
  }
  void end_registration(uint64_t number) override { registrations_->end(number); }

  Status run(const Call& call) override {
    if (options_.rank_count == 1 && call.reduction.op != ReduceOp::kPreMulSum) return copy_alone(call);
    if (registrations_->empty()) [[likely]]
      return run(call, {});
    const std::optional<RegisteredPlace> place = registrations_->find(call);
    Call registered = call;
    registered.registered = place.has_value();
    return run(registered, place.value_or(RegisteredPlace()));
  }

  Status run(const Call& call, const RegisteredPlace& output) {
    TUTTI_ASSIGN(GpuCall* const prepared, programs_->prepare(call));
    tutti_cuda_launch& launch = prepared->launch;
    launch.input = static_cast<const uint8_t*>(call.input);
    launch.output = static_cast<uint8_t*>(call.output);
    launch.scalar = call.reduction.scalar;
    if (prepared->to_registered) registrations_->set_peer_outputs(output, launch);
    if (prepared->copies) {
      uint64_t bits = address_bits(call.input) | address_bits(call.output) | launch.block_bytes;
      const uint32_t stored_to = prepared->to_registered ? launch.rank_count : 0;
      for (uint32_t rank = 0; rank < stored_to; ++rank) bits |= address_bits(launch.outputs[rank]);
      launch.data_type = copy_type(bits);
    }
    point_to_blocks(*prepared);
    for (const auto& next : prepared->next) {
      next->launch.input = launch.input;
      next->launch.output = launch.output;
      next->launch.data_type = launch.data_type;
      point_to_blocks(*next);
    }
    return in_order(call.stream, [&]() -> Status {
      if (prepared->has_side) TUTTI_TRY(registrations_->attach_side_stream(call.stream, launch.copies));
      TUTTI_TRY(launch_call(*prepared, call.stream));
      for (const auto& next : prepared->next) TUTTI_TRY(launch_call(*next, call.stream));
      return {};
    });
  }

  /// The only rank's output is its input. Copy engines are faster than one kernel per channel.
  Status copy_alone(const Call& call) {
    return in_order(call.stream, [&] { return copy_to_self(call, call); });
  }

  /// The messages of a collective move blocks of its buffers.
  static void point_to_blocks(GpuCall& call) {
    tutti_cuda_launch& launch = call.launch;
    for (size_t i = 0; i < call.hops.size(); ++i) {
      launch.messages[i].from = launch.input + call.hops[i].from * launch.block_bytes;
      launch.messages[i].to = launch.output + call.hops[i].to * launch.block_bytes;
    }
  }

  Status run_messages(std::span<const Call> calls) override;

  Result<Stream> common_stream(Stream stream) override {
    if (static_cast<cudaStream_t>(stream) != cudaStreamPerThread) return stream;
    if (common_stream_ == nullptr) {
      const cuda::DeviceScope scope(device_);
      const cuda::CaptureScope capture;
      TUTTI_ASSIGN(common_stream_, cuda::make_side_stream());
    }
    return static_cast<Stream>(common_stream_.get());
  }
  Status gather(std::span<const Stream> streams) override {
    const cuda::DeviceScope scope(device_);
    const bool leaves_thread = common_stream_ != nullptr && streams.front() == common_stream_.get();
    if (leaves_thread) TUTTI_TRY(order_->join(streams[0], streams[1]));  // into its capture, if there is one
    return order_->gather(streams);
  }
  Status release(std::span<const Stream> streams) override {
    const cuda::DeviceScope scope(device_);
    return order_->release(streams);
  }

  Status barrier(Stream stream) override {
    Call call{Collective::kAllReduce, scratch_.data(), scratch_.data() + 1, 1, DataType::kUint8, ReduceOp::kMax};
    call.stream = stream;
    TUTTI_TRY(run(call));
    const cuda::DeviceScope scope(device_);
    TUTTI_CUDA_TRY(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return fault();
  }

  Status finish() override {
    const cuda::DeviceScope scope(device_);
    return order_ == nullptr ? Status() : order_->finish();
  }

  void stop() override {
    std::atomic_ref<uint32_t>(control()->abort).store(1, std::memory_order_release);
    links_->stop();
  }

  Status fault() const override {
    const uint32_t code = std::atomic_ref<uint32_t>(control()->fault).load(std::memory_order_acquire);
    if (code == 0) return {};
    return kernel_fault(*control(), options_.rank, options_.timeout, options_.fabric->describe(control()->peer),
                        shares_context_);
  }

  KernelWaits::Sample kernel_waits() const override {
    // A kernel stores `seen` last, so the acquire makes its `waits`, or a later one, visible.
    const uint64_t seen = std::atomic_ref<uint64_t>(control()->seen).load(std::memory_order_acquire);
    return {std::atomic_ref<uint64_t>(control()->waits).load(std::memory_order_relaxed), seen};
  }

 private:
  const std::vector<std::unique_ptr<transport::Net>>& nets() const { return options_.fabric->nets(); }
  bool has_networks() const { return !nets().empty(); }

  /// Whether a network carries messages of this rank. Further networks may serve fail-over.
  bool carries(uint32_t network) const {
    const transport::Paths& paths = options_.fabric->paths();
    return network < options_.call_networks || std::find(paths.begin(), paths.end(), network) != paths.end();
  }

  /// The kind of memory of slots that a network moves: memory of this GPU if the network registers it.
  Result<uint32_t> heap_of(uint32_t network) const {
    if (options_.direct == Use::kOff || !carries(network)) return GpuLinks::kRelayed;
    const transport::Net& net = *nets()[network];
    if (net.only_slots()) return GpuLinks::kRelayed;  // setup has refused Use::kOn
    const auto takes = [&](uint64_t capability, uint32_t memory) {
      return (net.options().capabilities & capability) != 0 && net.registers(memory);
    };
    if (takes(TUTTI_NET_CAP_DMABUF, TUTTI_MEMORY_DMABUF) && cuda::exports_dmabufs(device_)) return GpuLinks::kDmabuf;
    if (takes(TUTTI_NET_CAP_DEVICE_MEMORY, TUTTI_MEMORY_CUDA)) return GpuLinks::kDirect;
    if (options_.direct == Use::kAuto) return GpuLinks::kRelayed;
    return Status(
        Code::kUnsupported,
        fmt::format("net.direct is on, but network '{}' registers no memory of GPU {}; set net.direct to auto",
                    net.options().name, device_));
  }

  /// The name of a port of the first network.
  std::string name_of_port(uint32_t port) const {
    for (const transport::Net::Device& device : nets().front()->devices()) {
      if (device.index == port) return {device.properties.name.data, device.properties.name.size};
    }
    return fmt::format("{}", port);
  }

  /// Why no second GPU lends memory for messages of the first network; empty: GPUs may.
  std::string why_no_detours() const {
    const uint32_t heap = links_->network(0).heap;
    if (!all_p2p_) return "some GPUs of a host do not reach each other, or a process does not see all of them";
    if (heap == GpuLinks::kRelayed) return "the network moves memory of the host alone";
    if (heap == GpuLinks::kDmabuf || options_.pxn == Use::kOn) return {};
    return fmt::format("network '{}' takes addresses of GPU memory, not dmabufs, so net.pxn must be on",
                       nets().front()->options().name);
  }

  /// Fails if net.pxn is on. Otherwise the log says that no message passes through `lender`.
  Status do_without(const std::string& lender, const std::string& why) const {
    if (options_.pxn == Use::kOn) {
      return {Code::kUnsupported, fmt::format("net.pxn is on, but {}; set net.pxn to auto", why)};
    }
    log::info("no message passes through {}: {}", lender, why);
    return {};
  }

  /// Memory of the GPU at a PCI address, for this rank's GPU. Null, with a line in the log: the GPU lends none.
  Result<std::shared_ptr<transport::Heap>> borrow_from(const std::string& gpu) const {
    cuda::PciAddress address{};
    std::copy_n(gpu.begin(), std::min(gpu.size(), address.size() - 1), address.begin());
    const bool dmabuf = links_->network(0).heap == GpuLinks::kDmabuf;
    TUTTI_ASSIGN(const std::string why_not, cuda::why_not_lent(address, device_, dmabuf));
    if (why_not.empty()) {
      TUTTI_ASSIGN(const int owner, cuda::device_at(address));
      return std::shared_ptr<transport::Heap>(std::make_shared<transport::LentHeap>(owner, device_, dmabuf));
    }
    TUTTI_TRY(do_without("GPU " + gpu, why_not));
    return std::shared_ptr<transport::Heap>();
  }

  /// Leaves room for a record behind each slot that networks move. Any of the networks may carry the slots.
  Status fit_networks(std::string_view protocol, GpuLinks::Protocol& link) const {
    if (nets().front()->only_slots()) return {};  // slots of the networks have a layout of their own
    for (uint32_t network = 0; network < nets().size(); ++network) {
      if (carries(network)) TUTTI_TRY(fit_network(protocol, link, *nets()[network]));
    }
    if (!link.has_flags) link.layout.slot_stride += transport::Relay::kRecordRoom;
    return {};
  }

  /// A message of the network carries the data of a slot, and a connection of the network has requests for all slots.
  Status fit_network(std::string_view protocol, const GpuLinks::Protocol& link, const transport::Net& net) const {
    const tutti_slot_layout& layout = link.layout;
    const uint64_t room = net.max_message_bytes();
    const uint64_t longest = link.has_flags ? transport::LineRelay::message_bytes(layout)
                                            : layout.slot_bytes + sizeof(transport::Relay::Record);
    if (longest > room) {
      return {Code::kConfig, fmt::format("protocol '{}' has slots of {} bytes between GPUs, but network '{}' carries "
                                         "messages of at most {} bytes; lower p2p.slot_size",
                                         protocol, layout.slot_bytes, net.options().name, room)};
    }
    if (link.has_flags) return {};
    const bool groups = (net.options().capabilities & TUTTI_NET_CAP_GROUPED_RECV) != 0;
    const bool splits = options_.direct != Use::kOff;  // a peer may be direct where this rank is not
    const uint32_t requests = transport::Relay::requests(layout.slot_count, splits, groups);
    if (requests <= TUTTI_NET_MIN_REQUESTS) return {};
    return {Code::kConfig, fmt::format("{} slots between GPUs need {} requests of the network at once, but networks "
                                       "offer {}; lower p2p.slots, or set net.direct to off",
                                       layout.slot_count, requests, TUTTI_NET_MIN_REQUESTS)};
  }

  Result<tutti_slot_layout> layout_of(const tuner::Protocol& protocol, uint64_t slot_bytes) const {
    tutti_slot_layout layout{};
    layout.struct_size = sizeof layout;
    layout.slot_count = options_.slots;
    layout.slot_bytes = slot_bytes;
    if (const int32_t code = protocol.ops->layout(protocol.plugin, TUTTI_LINK_P2P, &layout); code != TUTTI_OK) {
      return Status(static_cast<Code>(code), fmt::format("protocol '{}' cannot lay out a connection between GPUs: {}",
                                                         protocol.name, plugin::take_reason()));
    }
    if (layout.slot_count < 4 || !std::has_single_bit(layout.slot_count) || layout.slot_stride % 16 != 0 ||
        layout.slot_bytes < 512 || layout.chunk_slots < 1 || layout.chunk_slots > layout.slot_count / 2) {
      return Status(
          Code::kInternal,
          fmt::format("protocol '{}' lays out {} slots of {} bytes every {} bytes between GPUs, {} to a chunk; "
                      "it must be a power of two from 4, at least 512 bytes, a multiple of 16, and at most "
                      "half of the slots",
                      protocol.name, layout.slot_count, layout.slot_bytes, layout.slot_stride, layout.chunk_slots));
    }
    return layout;
  }

  /// Frees this rank's mappings of memory of other ranks. CUDA may wait for all kernels of the process when it unmaps
  /// memory, so all kernels of all ranks must have ended before. Collective: two barriers.
  Status leave() {
    TUTTI_TRY(finish());
    const base::Time deadline = base::time_in(kGoodbye);
    TUTTI_TRY(bootstrap_.barrier(deadline));
    registrations_.reset();
    if (links_ != nullptr) links_->close();
    return bootstrap_.barrier(deadline);
  }

  /// The place at which each rank's GPU is used.
  struct Seat {
    uint64_t process = 0;  ///< process ids repeat among containers, tokens do not
    uint32_t host = 0;     ///< the first rank of the rank's host
    uint32_t multiprocessors = 0;
    cuda::PciAddress pci = {};
    cuda::GpuUuid gpu = {};  ///< ranks that pretend to have several hosts, or run in several containers, may share it
  };

  /// Whether the job wants fewer CTAs than possible. Between hosts the network limits the number of channels.
  bool is_limited() const { return !has_networks() && options_.max_channels < TUTTI_CUDA_MAX_CTAS; }
  uint32_t message_ctas() const {
    return is_limited() ? std::clamp(options_.max_channels / 2, 1u, kMessageCtas) : kMessageCtas;
  }

  /// This rank's share of `ctas`, if several ranks share a GPU: whole clusters if there is room. All ranks of a GPU
  /// wait for each other, so the GPU must hold the CTAs of all its ranks at once, each with CTAs of so many `kinds`.
  uint32_t share_of(uint32_t ctas, uint32_t kinds = 1) const {
    if (ranks_per_gpu_ == 1) return ctas;
    const uint32_t share =
        std::max(ctas / ranks_per_gpu_ / TUTTI_CUDA_CLUSTER * TUTTI_CUDA_CLUSTER, std::min(ctas, TUTTI_CUDA_CLUSTER));
    // An SM holds at least one CTA of any kernel. Clusters leave some SMs of a GPC idle.
    const uint32_t room = (multiprocessors_ - multiprocessors_ / 8) / ranks_per_gpu_ / kinds;
    return std::max(std::min(share, room), 1u);
  }

  /// By rank: the memory in which it and this rank meet. Collective: two exchanges.
  Result<std::vector<uint32_t>> meet_gpus(base::Time deadline) {
    Seat own{bootstrap::process_token(), options_.local_ranks.front(), 0, {}, {}};
    TUTTI_ASSIGN(own.gpu, cuda::uuid(device_));
    TUTTI_ASSIGN(own.multiprocessors, cuda::multiprocessors(device_));
    TUTTI_ASSIGN(own.pci, cuda::pci_address(device_));
    TUTTI_ASSIGN(const std::vector<Seat> seats, bootstrap::exchange(bootstrap_, own, deadline));
    multiprocessors_ = own.multiprocessors;
    for (const Seat& seat : seats) {
      addresses_.emplace_back(seat.pci.data());
      multiprocessors_ = std::min(multiprocessors_, seat.multiprocessors);
    }
    TUTTI_ASSIGN(const std::vector<uint8_t> reached, reached_gpus(seats));
    TUTTI_ASSIGN(const auto reach, bootstrap_.all_gather(std::as_bytes(std::span(reached)), deadline));
    std::vector<uint32_t> places;  // by rank: its number among the ranks of its host
    std::map<uint32_t, uint32_t> ranks_of_host;
    std::map<cuda::GpuUuid, uint32_t> ranks_of_gpu;
    uint32_t beside_own = 0;  // ranks of this process on this rank's GPU, with this rank
    uint32_t of_process = 0;  // ranks of this process
    for (const Seat& seat : seats) {
      places.push_back(ranks_of_host[seat.host]++);
      ranks_per_gpu_ = std::max(ranks_per_gpu_, ++ranks_of_gpu[seat.gpu]);
      if (seat.process == own.process && seat.gpu == own.gpu) ++beside_own;
      if (seat.process == own.process) ++of_process;
    }
    shares_context_ = beside_own > 1;
    // CUDA waits for kernels to make a stream, and kernels may then wait for ranks of this process. Ranks that share a
    // GPU have no hardware queue to spare.
    if (of_process > 1 && !shares_context_) TUTTI_TRY(common_stream(cudaStreamPerThread).status());
    one_host_ = ranks_of_host.size() == 1;
    const auto reaches = [&](uint32_t a, uint32_t b) {
      return places[b] < reach[a].size() && reach[a][places[b]] != std::byte{0};
    };
    std::vector<uint32_t> heaps(seats.size(), GpuLinks::kRelayed);
    for (const uint32_t rank : options_.local_ranks) {
      heaps[rank] = reaches(options_.rank, rank) && reaches(rank, options_.rank) ? kP2pHeap : kStagedHeap;
    }
    for (const bootstrap::Gathered::Part from_rank : reach) {
      if (std::count(from_rank.begin(), from_rank.end(), std::byte{0}) > 0) all_p2p_ = false;
    }
    if (shares_context_) warn_about_queues();
    return heaps;
  }

  /// By rank of this host: 1 if this rank's GPU reaches the rank's GPU, or if it is this rank.
  Result<std::vector<uint8_t>> reached_gpus(const std::vector<Seat>& seats) const {
    std::vector<uint8_t> reached;
    for (const uint32_t rank : options_.local_ranks) {
      std::string why_not = "transport is set to 'shm'";
      if (!options_.staged) {
        TUTTI_ASSIGN(why_not, cuda::why_unreachable(device_, seats[rank].pci));
      }
      reached.push_back(why_not.empty() || rank == options_.rank ? 1 : 0);
      if (reached.back() == 0) {
        log::info("rank {} is reached through memory of the host, and without LL128: {}", rank, why_not);
      }
    }
    return reached;
  }

  /// CUDA reads the number of hardware queues when it starts, so the library cannot set it.
  static void warn_about_queues() {
    static std::once_flag warned;
    const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (queues != nullptr && std::strtoul(queues, nullptr, 10) >= kQueues) return;
    std::call_once(warned, [] {
      log::warn(
          "ranks of this process share a GPU, and CUDA_DEVICE_MAX_CONNECTIONS is below {}: a kernel may wait for a "
          "stream of another rank, and the ranks then wait for each other; set it before the program starts",
          kQueues);
    });
  }

  tutti_cuda_control* control() const { return static_cast<tutti_cuda_control*>(control_.on_host()); }

  /// Enqueues the work of `enqueue` on the stream, after all earlier work of this communicator. This GPU is current in
  /// `enqueue`.
  template <class Enqueue>
  Status in_order(Stream stream, Enqueue&& enqueue) {
    const cuda::DeviceScope scope(device_);
    TUTTI_TRY(order_->begin(stream));
    const Status enqueued = enqueue();
    const Status ended = order_->end();
    return enqueued.ok() ? ended : enqueued;
  }

  /// Memory that kernels may still use when their end is not known: never freed.
  struct Kept {
    cuda::MappedMemory control;
    cuda::DeviceMemory sequences;
    cuda::DeviceMemory scratch;
  };

  static Status launch_call(const GpuCall& call, Stream stream) {
    const int32_t code = call.ops->launch(call.plugin, &call.launch, stream);
    if (code == TUTTI_OK) [[likely]]
      return {};
    return {static_cast<Code>(code), "the protocol's kernel was not launched: " + plugin::take_reason()};
  }

  static Status copy_to_self(const Call& send, const Call& receive);

  /// Begins in the destructor, and ends after all further members: a capture of a different thread would refuse the
  /// calls that free them.
  std::optional<cuda::CaptureScope> end_;
  Options options_;
  bootstrap::Bootstrap& bootstrap_;
  int device_ = 0;
  cuda::MappedMemory control_;
  cuda::DeviceMemory scratch_;  // of barriers
  cuda::DeviceMemory sequences_;
  std::vector<std::string> addresses_;
  std::vector<uint32_t> strand_ctas_;  // by protocol
  uint32_t ranks_per_gpu_ = 1;         // the most of any
  uint32_t multiprocessors_ = 0;       // the least of any rank's GPU
  bool all_p2p_ = true;                // all GPUs of a host reach each other
  bool one_host_ = true;               // whether all ranks are on one host
  bool shares_context_ = false;        // whether two ranks share a GPU in one process
  std::unique_ptr<GpuLinks> links_;
  std::unique_ptr<GpuPrograms> programs_;
  std::unique_ptr<GpuMessages> messages_;
  std::unique_ptr<GpuRegistrations> registrations_;
  std::unique_ptr<StreamOrder> order_;  // null: nothing was enqueued
  cuda::Stream common_stream_;          // for groups on cudaStreamPerThread
};

Status CudaGpu::run_messages(std::span<const Call> calls) {
  TUTTI_ASSIGN(const OwnMessages own, own_messages(calls, static_cast<int>(options_.rank)));
  TUTTI_ASSIGN(const std::span<const GpuCall> launches, messages_->prepare(calls));
  const Stream stream = calls.front().stream;
  return in_order(stream, [&]() -> Status {
    for (size_t i = 0; i < own.sends.size(); ++i) TUTTI_TRY(copy_to_self(*own.sends[i], *own.receives[i]));
    for (const GpuCall& launch : launches) TUTTI_TRY(launch_call(launch, stream));
    return {};
  });
}

Status CudaGpu::copy_to_self(const Call& send, const Call& receive) {
  const size_t bytes = send.count * size_of(send.type);
  if (bytes == 0 || receive.output == send.input) return {};
  return cuda::check(cudaMemcpyAsync(receive.output, send.input, bytes, cudaMemcpyDeviceToDevice,
                                     static_cast<cudaStream_t>(send.stream)),
                     "cudaMemcpyAsync");
}

}  // namespace

Result<std::string> Gpu::current_address() {
  TUTTI_ASSIGN(const int device, cuda::current_device());
  TUTTI_ASSIGN(const cuda::PciAddress address, cuda::pci_address(device));
  return std::string(address.data());
}

Result<std::unique_ptr<Gpu>> Gpu::create(const Options& options, const std::vector<tuner::Protocol>& protocols,
                                         bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  TUTTI_TRY(gpu_back_end().takes(options.rank_count));
  auto gpu = std::make_unique<CudaGpu>(options, bootstrap);
  TUTTI_TRY(gpu->open(protocols, deadline));
  return std::unique_ptr<Gpu>(std::move(gpu));
}

}  // namespace tutti::backend
