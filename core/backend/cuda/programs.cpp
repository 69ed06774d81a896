// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/large_programs.h"
#include "backend/cuda/launch_builder.h"
#include "log/log.h"
#include "plugin/loader.h"

namespace tutti::backend {

using transport::Traffic;

namespace {

constexpr uint32_t kMessageThreads = 512;
// Blocks of so many bytes that go from peer to peer are sent as messages: CTAs that only send or only receive.
constexpr uint64_t kMessageBytes = 4 << 20;
constexpr uint32_t kKeptStripes = 12;  // own copies run beside sends; fewer SMs would take longer than a link

/// The links without their slots.
std::vector<tutti_cuda_link> without_slots(std::vector<tutti_cuda_link> links) {
  for (tutti_cuda_link& link : links) link.to = nullptr, link.from = nullptr, link.scattered = nullptr;
  return links;
}

transport::GpuKey message_key(const GpuCall& call, const tutti_cuda_message& message) {
  return {call.protocol, Traffic::kPointToPoint, message.stripe_count, message.peer, {}, call.network};
}

/// Messages and copies run the first channel's plan alone: their stripes are cut by size.
tuner::Decision on_first_channel(tuner::Decision decision) {
  decision.channels = 1;
  return decision;
}

}  // namespace

uint32_t copy_type(uint64_t bits) {
  if (bits % 8 == 0) return TUTTI_UINT64;
  return bits % 4 == 0 ? TUTTI_UINT32 : TUTTI_UINT8;
}

GpuPrograms::GpuPrograms(const Options& options, const tuner::Selector& selector, const Plans& plans,
                         transport::GpuLinks& links)
    : options_(options),
      selector_(selector),
      plans_(plans),
      links_(links),
      loaded_(selector.choices().protocols.size()) {}

Result<std::unique_ptr<GpuPrograms>> GpuPrograms::create(const Options& options, const tuner::Selector& selector,
                                                         const Plans& plans, transport::GpuLinks& links) {
  std::unique_ptr<GpuPrograms> programs(new GpuPrograms(options, selector, plans, links));
  if (!options.load_first) return programs;
  const auto& protocols = selector.choices().protocols;
  for (uint32_t p = 0; p < protocols.size(); ++p) {
    if ((protocols[p].properties.devices & TUTTI_DEVICE_CUDA) != 0) TUTTI_TRY(programs->load(p));
  }
  return programs;
}

Result<GpuCall*> GpuPrograms::prepare(const Call& call) {
  return kept_.get(call, static_cast<int>(options_.rank), [&](bool in_place) { return make(call, in_place); });
}

/// Loads all kernels of a protocol before its first launch: a kernel that is loaded when it is started may wait for all
/// running kernels.
Status GpuPrograms::load(uint32_t protocol) {
  if (loaded_[protocol]) [[likely]]
    return {};
  const tuner::Protocol& with = selector_.choices().protocols[protocol];
  const cuda::DeviceScope device(options_.device);
  const cuda::CaptureScope capture;
  if (const int32_t code = with.ops->launch(with.plugin, nullptr, nullptr); code != TUTTI_OK) {
    return {static_cast<Code>(code), fmt::format("kernels of protocol '{}': {}", with.name, plugin::take_reason())};
  }
  loaded_[protocol] = true;
  return {};
}

Status GpuPrograms::load_for_registered() {
  const auto& protocols = selector_.choices().protocols;
  for (uint32_t p = 0; p < protocols.size(); ++p) {
    const tutti_protocol_properties& properties = protocols[p].properties;
    if (properties.needs_registered == 0 || (properties.devices & TUTTI_DEVICE_CUDA) == 0) continue;
    TUTTI_TRY(load(p));
  }
  return {};
}

Status GpuPrograms::begin(uint32_t protocol, uint32_t network, Traffic traffic, GpuCall& call) {
  TUTTI_TRY(load(protocol));
  const tuner::Protocol& with = selector_.choices().protocols[protocol];
  call.protocol = protocol;
  call.network = network;
  call.ops = with.ops;
  call.plugin = with.plugin;
  call.launch.struct_size = sizeof call.launch;
  call.links = links_.describe(protocol, network, traffic, options_.sequences, call.launch);
  call.launch.control = options_.control;
  call.launch.timeout_ns = options_.timeout_ns;
  call.launch.shares_gpu = options_.shares_gpu ? 1 : 0;
  return {};
}

Status GpuPrograms::begin_messages(uint32_t protocol, uint32_t network, GpuCall& call) {
  call.copies = true;
  call.launch.reduce_op = TUTTI_SUM;
  return begin(protocol, network, Traffic::kPointToPoint, call);
}

uint32_t GpuPrograms::stripes_for(uint32_t protocol, uint32_t channels) const {
  return std::min(channels, links_.protocol(protocol).max_ctas[static_cast<uint32_t>(Traffic::kPointToPoint)]);
}

Result<std::vector<uint32_t>> GpuPrograms::lay_out(std::span<const backend::Message> messages, GpuCall& call) const {
  call.launch.thread_count = kMessageThreads;
  return backend::lay_out(messages, links_.protocol(call.protocol).layout, options_.message_ctas, call.launch);
}

/// Gives a link the slots that the peer fills.
Status GpuPrograms::offer(const transport::GpuKey& key, tutti_cuda_link& link) {
  TUTTI_ASSIGN(link.from, links_.offer(key));
  link.scattered = links_.scattered(key);
  return {};
}

/// Gives a link the slots that this GPU fills.
Status GpuPrograms::reach(const transport::GpuKey& key, tutti_cuda_link& link) {
  TUTTI_ASSIGN(link.to, links_.reach(key));
  link.scattered = links_.scattered(key);
  return {};
}

Status GpuPrograms::offer(GpuCall& call) {
  for (uint32_t i = 0; i < call.launch.message_count; ++i) {
    const tutti_cuda_message& message = call.launch.messages[i];
    if (message.kind != TUTTI_CUDA_RECEIVE) continue;
    TUTTI_TRY(offer(message_key(call, message), call.links[message.peer]));
  }
  return {};
}

Status GpuPrograms::reach(GpuCall& call) {
  for (uint32_t i = 0; i < call.launch.message_count; ++i) {
    const tutti_cuda_message& message = call.launch.messages[i];
    if (message.kind != TUTTI_CUDA_SEND) continue;
    TUTTI_TRY(reach(message_key(call, message), call.links[message.peer]));
  }
  if (is_large(call.launch.rank_count, {})) return place_message_links(call);
  backend::place_links(call.links, call.launch);
  return {};
}

/// Puts links of the large form, by rank, into a row in memory of the GPU. Returns the row.
Result<const tutti_cuda_link*> GpuPrograms::place_links(const GpuCall& call, Traffic traffic, uint32_t row,
                                                        std::span<const tutti_cuda_link> links) {
  const auto [found, is_new] =
      tables_.try_emplace({call.protocol, call.network, traffic}, Links{LinkTable(plans_.rank_count()), {}});
  Links& own = found->second;
  if (is_new) {
    TUTTI_ASSIGN(own.on_device, cuda::DeviceMemory::create(options_.device, own.table.all().size_bytes()));
  }
  const size_t at = row * own.table.row(row).size_bytes();
  if (own.table.merge(row, links)) {
    TUTTI_TRY(own.on_device.fill(own.table.row(row).data(), own.table.row(row).size_bytes(), at));
  }
  return reinterpret_cast<const tutti_cuda_link*>(own.on_device.data() + at);
}

/// Puts the links of each message into the row of its number of stripes.
Status GpuPrograms::place_message_links(GpuCall& call) {
  const std::vector<tutti_cuda_link> blank = without_slots(call.links);
  for (uint32_t i = 0; i < call.launch.message_count; ++i) {
    const tutti_cuda_message& message = call.launch.messages[i];
    std::vector<tutti_cuda_link> links = blank;
    links[message.peer].scattered = call.links[message.peer].scattered;
    if (message.kind == TUTTI_CUDA_SEND) links[message.peer].to = call.links[message.peer].to;
    if (message.kind == TUTTI_CUDA_RECEIVE) links[message.peer].from = call.links[message.peer].from;
    const uint32_t row = LinkTable::row_of(message.stripe_count);
    TUTTI_TRY(place_links(call, Traffic::kPointToPoint, row, links).status());
  }
  TUTTI_ASSIGN(call.launch.tables.links, place_links(call, Traffic::kPointToPoint, 0, blank));
  call.links.clear();
  return {};
}

/// Makes slots for all messages that the program receives, then for all messages that it sends.
Status GpuPrograms::connect(Program& program, const tuner::Decision& decision, GpuCall& call) {
  const program::SlotPeers peers = slot_peers(program.channels);
  const auto key = [&](uint32_t peer, std::span<const transport::Ports> ports) {
    return transport::GpuKey{call.protocol, Traffic::kCollective, decision.channels, peer, ports, call.network};
  };
  for (const uint32_t peer : peers.senders) {
    TUTTI_ASSIGN(const std::vector<transport::Ports> ports, ports_of(decision, peer));
    TUTTI_TRY(offer(key(peer, ports), call.links[peer]));
  }
  for (const uint32_t peer : peers.receivers) {
    TUTTI_ASSIGN(const std::vector<transport::Ports> ports, ports_of(decision, peer));
    TUTTI_TRY(reach(key(peer, ports), call.links[peer]));
  }
  if (!program.is_large) {
    backend::place_links(call.links, call.launch);
    return {};
  }
  return place_large(program, LinkTable::row_of(decision.channels), call);
}

/// Puts programs of the large form into memory of the GPU, with the links of their connections. All calls of a program
/// have the same number of CTAs, so they have the same links.
Status GpuPrograms::place_large(Program& program, uint32_t row, GpuCall& call) {
  const bool numbers_are_ranks = call.launch.rank_count <= TUTTI_CUDA_MAX_CONNECTIONS + 1;
  // If numbers are not ranks, kernels find slots in the block and mailboxes alone in the table, which is one for all
  // numbers of CTAs.
  const std::vector<tutti_cuda_link> links = numbers_are_ranks ? call.links : without_slots(call.links);
  TUTTI_ASSIGN(const tutti_cuda_link* const links_by_rank,
               place_links(call, Traffic::kCollective, numbers_are_ranks ? row : 0, links));
  if (program.on_device.size() == 0) {
    const LargePrograms large(program.channels, options_.rank, call.launch.rank_count);
    TUTTI_ASSIGN(cuda::DeviceMemory memory, cuda::DeviceMemory::create(options_.device, large.bytes()));
    const std::vector<std::byte> block = large.encode(memory.data(), call.links, links_by_rank);
    TUTTI_TRY(memory.fill(block.data(), block.size()));
    std::memcpy(&program.first, block.data(), sizeof program.first);
    program.on_device = std::move(memory);
  }
  call.launch.tables.links = links_by_rank;
  call.links.clear();
  return {};
}

/// The ports of each channel of an algorithm; none for a peer of this host. The algorithm knows the ports of the first
/// network alone. The first call makes the connections of all CTAs, so the decision's number of channels plays no part.
Result<std::vector<transport::Ports>> GpuPrograms::ports_of(const tuner::Decision& decision, uint32_t peer) const {
  std::vector<transport::Ports> ports;
  if (!links_.relayed(peer) || decision.network != 0) return ports;
  for (uint32_t channel = 0; channel < selector_.choices().algorithms[decision.algorithm].channels; ++channel) {
    TUTTI_ASSIGN(ports.emplace_back(), plans_.ports(decision.algorithm, channel, peer));
  }
  return ports;
}

Result<std::unique_ptr<GpuCall>> GpuPrograms::make(const Call& call, bool in_place) {
  TUTTI_ASSIGN(tuner::Decision decision,
               selector_.choose({call.collective, call.type, call.reduction.op, call.count, call.registered}));
  if (selector_.choices().protocols[decision.protocol].properties.needs_registered != 0) {
    return make_copies(decision, call, in_place);
  }
  TUTTI_ASSIGN(auto hops, hops_of(decision, call));
  if (hops) return make_messages(decision, call, in_place, *std::move(hops));
  const transport::GpuLinks::Protocol& protocol = links_.protocol(decision.protocol);
  decision.channels = std::min(decision.channels, protocol.max_ctas[static_cast<uint32_t>(Traffic::kCollective)]);
  TUTTI_ASSIGN(Program* const program, GpuPrograms::program(decision, call, in_place));
  decision.channels = std::min(decision.channels, program->most_channels);
  auto made = std::make_unique<GpuCall>();
  TUTTI_TRY(begin(decision.protocol, decision.network, Traffic::kCollective, *made));
  made->copies = !program::reduces(call.collective);
  made->to_registered = program->direct_store;
  TUTTI_TRY(connect(*program, decision, *made));
  LaunchShape shape;
  shape.ctas = decision.channels;
  shape.layout = program->layout;
  shape.program_count = static_cast<uint32_t>(program->channels.size());
  if (program->is_large) {
    shape.tables.links = made->launch.tables.links;
    shape.tables.programs = reinterpret_cast<const tutti_cuda_large_program*>(program->on_device.data());
    shape.tables.first = program->first;
    if (!program->strands.empty()) {
      shape.tables.strands = reinterpret_cast<const tutti_cuda_strands*>(program->strands_on_device.data());
      shape.tables.progress = reinterpret_cast<tutti_cuda_progress*>(progress_.data());
      shape.tables.strand_count = ctas_of_channel(program->strands);
    }
    const uint64_t scratch = scratch_bytes(program->channels, call.count * size_of(call.type));
    if (scratch > 0) {
      TUTTI_ASSIGN(shape.tables.scratch, scratch_.reserve(scratch));
    }
  } else {
    shape.programs = reinterpret_cast<const tutti_cuda_program*>(program->on_device.data());
  }
  encode_collective(call, program->channels.front(), shape, made->launch);
  return made;
}

/// The hops of a call that runs as messages; nothing: it runs as a program.
Result<std::optional<std::vector<backend::Hop>>> GpuPrograms::hops_of(const tuner::Decision& decision,
                                                                      const Call& call) const {
  std::optional<std::vector<backend::Hop>> own;
  bool as_messages = gains_by_messages(decision, call);
  if (!as_messages) {
    TUTTI_ASSIGN(as_messages, needs_messages(decision, call.collective));
  }
  if (!as_messages) return own;
  for (uint32_t rank = 0; rank < plans_.rank_count(); ++rank) {  // either all ranks have hops, or none
    TUTTI_ASSIGN(const program::Plan plan, plans_.request(decision, call.collective, rank, 0, 0));
    auto hops = backend::hops_of(plan);
    if (!hops) return hops;
    if (rank == options_.rank) own = std::move(hops);
  }
  return own;
}

/// Whether any rank's plan of any channel has more connections than a program. All ranks ask about the same plans.
Result<bool> GpuPrograms::needs_messages(const tuner::Decision& decision, Collective collective) const {
  const bool may_have_hops = collective == Collective::kAllToAll || collective == Collective::kAllGather;
  if (plans_.rank_count() <= TUTTI_CUDA_MAX_CONNECTIONS + 1 || !may_have_hops) return false;
  for (uint32_t channel = 0; channel < channels_of(decision); ++channel) {
    for (uint32_t rank = 0; rank < plans_.rank_count(); ++rank) {
      TUTTI_ASSIGN(const program::Plan plan, plans_.request(decision, collective, rank, channel, 0));
      if (runs_as_messages(plan)) return true;
    }
  }
  return false;
}

/// Whether messages are faster than a program, if the call has hops.
bool GpuPrograms::gains_by_messages(const tuner::Decision& decision, const Call& call) const {
  // A send and a receive of each peer, and a copy.
  if (2 * plans_.rank_count() - 1 > TUTTI_CUDA_MAX_MESSAGES) return false;
  const bool has_flags = selector_.choices().protocols[decision.protocol].properties.flags_in_data != TUTTI_FLAGS_NONE;
  // With direct stores, CTAs that only receive would be idle.
  return !options_.is_limited && !direct_store(decision, call) && !has_flags && !program::reduces(call.collective) &&
         call.count * size_of(call.type) >= kMessageBytes;
}

/// A call of many ranks has several launches. Both ends of a message have it in the same launch, and all ranks run
/// their launches in the order of distances.
Result<std::unique_ptr<GpuCall>> GpuPrograms::make_messages(const tuner::Decision& decision, const Call& call,
                                                            bool in_place, std::vector<backend::Hop> hops) {
  const uint32_t slots = links_.protocol(decision.protocol).layout.slot_count / 2;
  TUTTI_TRY(plans_.verify(on_first_channel(decision), call.collective, 0, in_place, slots));
  if (in_place) std::erase_if(hops, [](const backend::Hop& hop) { return hop.kind == TUTTI_CUDA_KEEP; });
  std::vector<std::unique_ptr<GpuCall>> launches;
  for (const std::vector<backend::Hop>& part : in_parts(hops, options_.rank, plans_.rank_count())) {
    TUTTI_ASSIGN(launches.emplace_back(), make_launch(decision, call.count * size_of(call.type), part));
  }
  for (const auto& launch : launches) TUTTI_TRY(offer(*launch));
  for (const auto& launch : launches) TUTTI_TRY(reach(*launch));
  std::unique_ptr<GpuCall> first = std::move(launches.front());
  first->next.assign(std::make_move_iterator(launches.begin() + 1), std::make_move_iterator(launches.end()));
  return first;
}

/// A launch of messages of a collective.
Result<std::unique_ptr<GpuCall>> GpuPrograms::make_launch(const tuner::Decision& decision, uint64_t block_bytes,
                                                          std::span<const backend::Hop> hops) {
  auto made = std::make_unique<GpuCall>();
  TUTTI_TRY(begin_messages(decision.protocol, decision.network, *made));
  made->launch.block_bytes = block_bytes;
  std::vector<backend::Message> messages;
  for (const backend::Hop& hop : hops) {
    const uint32_t stripes =
        hop.kind == TUTTI_CUDA_KEEP ? kKeptStripes : stripes_for(decision.protocol, decision.channels);
    messages.push_back({hop.kind, hop.peer, block_bytes, stripes});
  }
  TUTTI_ASSIGN(const std::vector<uint32_t> places, lay_out(messages, *made));
  made->hops.resize(hops.size());
  for (size_t i = 0; i < hops.size(); ++i) made->hops[places[i]] = hops[i];
  return made;
}

/// Needs no connections: mailboxes are there from the start.
Result<std::unique_ptr<GpuCall>> GpuPrograms::make_copies(const tuner::Decision& decision, const Call& call,
                                                          bool in_place) {
  const auto root = static_cast<uint32_t>(call.root);
  const uint32_t slots = links_.protocol(decision.protocol).layout.slot_count / 2;
  TUTTI_TRY(plans_.verify(on_first_channel(decision), call.collective, root, in_place, slots));
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < plans_.rank_count(); ++rank) {
    TUTTI_ASSIGN(plans.emplace_back(), plans_.request(decision, call.collective, rank, 0, root));
  }
  TUTTI_ASSIGN(const program::Copies copies, program::copies(plans, options_.rank, in_place));
  auto made = std::make_unique<GpuCall>();
  TUTTI_TRY(begin(decision.protocol, decision.network, Traffic::kCollective, *made));
  made->copies = made->to_registered = made->has_side = true;
  backend::place_links(made->links, made->launch);
  encode_copies(copies, call.count * size_of(call.type), made->launch);
  return made;
}

bool GpuPrograms::direct_store(const tuner::Decision& decision, const Call& call) const {
  return call.registered && selector_.choices().protocols[decision.protocol].properties.direct_store != 0;
}

/// How many plans the decision's CTAs run: CTAs beyond the algorithm's channels begin with the first plan again.
uint32_t GpuPrograms::channels_of(const tuner::Decision& decision) const {
  return std::min(decision.channels, selector_.choices().algorithms[decision.algorithm].channels);
}

/// The plans of all ranks, by channel, of which each strand runs in a CTA of its own if kernels can do so. Else they
/// are lists. A single channel if all channels have equal plans without strands.
Result<ChannelPlans> GpuPrograms::plans_of(const tuner::Decision& decision, const Call& call, Program& program) const {
  const auto collect = [&](Plans::Form form) -> Result<ChannelPlans> {
    PlanCollector plans;
    for (uint32_t channel = 0; channel < channels_of(decision); ++channel) {
      std::vector<program::Plan> all_ranks;
      for (uint32_t rank = 0; rank < plans_.rank_count(); ++rank) {
        TUTTI_ASSIGN(all_ranks.emplace_back(),
                     plans_.request(decision, call.collective, rank, channel, static_cast<uint32_t>(call.root), form));
      }
      plans.add(std::move(all_ranks));
    }
    return plans.take();
  };
  const tuner::Protocol& protocol = selector_.choices().protocols[decision.protocol];
  TUTTI_ASSIGN(ChannelPlans plans, collect(Plans::Form::kStrands));
  const StrandChoice choice =
      choose_strands(plans, protocol.properties.strands != 0, options_.most_ctas, protocol.strand_ctas);
  program.most_channels = choice.channels;
  if (choice.why_lists.empty()) return plans;
  log::info("strands of {} on {} run as a list: {}", selector_.choices().algorithms[decision.algorithm].name,
            protocol.name, choice.why_lists);
  return collect(Plans::Form::kList);
}

/// Makes this rank's programs, by channel.
Status GpuPrograms::lower(const tuner::Decision& decision, const Call& call, bool in_place, Program& program) const {
  TUTTI_ASSIGN(ChannelPlans plans, plans_of(decision, call, program));
  TUTTI_ASSIGN(const KernelPlans fit, fit_kernels(std::move(plans), links_.protocol(decision.protocol).layout));
  for (const std::vector<program::Plan>& channel : fit.plans) {
    if (fit.has_changed) TUTTI_TRY(plans_.verify(channel, in_place, fit.slots));
  }
  TUTTI_ASSIGN(const program::Programs programs,
               lower_channels(fit.plans, in_place, direct_store(decision, call), fit.layout));
  program.channels = programs_of_rank(programs, options_.rank);
  program.strands = strands_of_rank(fit.plans, options_.rank);
  program.layout = fit.layout;
  return {};
}

Result<GpuPrograms::Program*> GpuPrograms::program(const tuner::Decision& decision, const Call& call, bool in_place) {
  const CallKey key{decision, call.collective, static_cast<uint32_t>(call.root), in_place,
                    direct_store(decision, call)};
  auto& program = programs_[key];
  if (program != nullptr) return program.get();
  const uint32_t slots = links_.protocol(decision.protocol).layout.slot_count / 2;  // senders may lag so far behind
  tuner::Decision proved = decision;
  proved.channels = channels_of(decision);
  TUTTI_TRY(plans_.verify(proved, call.collective, static_cast<uint32_t>(call.root), in_place, slots));
  auto made = std::make_unique<Program>();
  TUTTI_TRY(lower(decision, call, in_place, *made));
  made->direct_store = std::any_of(made->channels.begin(), made->channels.end(), program::uses_outputs);
  made->is_large = is_large(plans_.rank_count(), made->channels);
  TUTTI_TRY(place_on_device(*made));
  program = std::move(made);
  return program.get();
}

Result<uint8_t*> GpuPrograms::allocate_scratch(uint64_t bytes) {
  TUTTI_ASSIGN(scratch_buffers_.emplace_back(), cuda::DeviceMemory::create(options_.device, bytes));
  return scratch_buffers_.back().data();
}

/// Puts strands, and programs of the small form that launches do not hold, into memory of the GPU.
Status GpuPrograms::place_on_device(Program& program) {
  const auto fill = [&](const auto& values, cuda::DeviceMemory& memory) -> Status {
    const size_t bytes = values.size() * sizeof values.front();
    TUTTI_ASSIGN(memory, cuda::DeviceMemory::create(options_.device, bytes));
    return memory.fill(values.data(), bytes);
  };
  if (!program.strands.empty()) {
    TUTTI_TRY(fill(program.strands, program.strands_on_device));
    const size_t bytes = options_.most_ctas * sizeof(tutti_cuda_progress);
    if (progress_.size() == 0) {
      TUTTI_ASSIGN(progress_, cuda::DeviceMemory::create(options_.device, bytes));
    }
  }
  const bool in_memory = !program.is_large && program.channels.size() > 1;
  return in_memory ? fill(small_programs(program.channels), program.on_device) : Status();
}

}  // namespace tutti::backend
