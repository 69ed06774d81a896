// SPDX-License-Identifier: Apache-2.0
// The words of CUDA come before the kernels.
#include "emulator/cuda.h"
// Then:
#include "unit/kernel_machine.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "backend/cuda/large_programs.h"
#include "backend/cuda/launch_builder.h"
#include "backend/cuda/link_table.h"
#include "tutti/device/cuda/direct_kernel.h"
#include "tutti/device/cuda/kernel_choice.h"
#include "tutti/device/cuda/ll_strands_kernel.h"
#include "tutti/device/cuda/simple_strands_kernel.h"

namespace tutti::test {
namespace {

template <class Element>
void run_large_kernel(Wire wire, const tutti_cuda_launch& launch) {
  const bool messages = launch.message_count > 0;
  switch (wire) {
    case Wire::kLL:
      return messages ? device::run_large_ll_messages<device::LLWire, Element>(launch)
                      : device::run_large_ll<device::LLWire, Element, device::Sum>(launch);
    case Wire::kLL128:
      return messages ? device::run_large_ll_messages<device::LL128Wire, Element>(launch)
                      : device::run_large_ll<device::LL128Wire, Element, device::Sum>(launch);
    default:
      return messages ? device::run_large_simple_messages<Element>(launch)
                      : device::run_large_simple<Element, device::Sum>(launch);
  }
}

template <class Element>
void run_strands_kernel(Wire wire, const tutti_cuda_launch& launch) {
  switch (wire) {
    case Wire::kLL:
      return device::run_ll_strands<device::LLWire, Element, device::Sum>(launch);
    case Wire::kLL128:
      return device::run_ll_strands<device::LL128Wire, Element, device::Sum>(launch);
    default:
      return device::run_simple_strands<Element, device::Sum>(launch);
  }
}

template <class Element>
void run_kernel(Wire wire, const tutti_cuda_launch& launch) {
  if (device::has_strands(launch)) return run_strands_kernel<Element>(wire, launch);
  if (launch.tables.links != nullptr) return run_large_kernel<Element>(wire, launch);
  const bool messages = launch.message_count > 0;
  switch (wire) {
    case Wire::kLL:
      if (launch.one_hop.send_count + launch.one_hop.recv_count > 0) {
        return device::run_direct<Element, device::Sum>(launch);
      }
      return messages ? device::run_ll_messages<device::LLWire, Element>(launch)
                      : device::run_ll<device::LLWire, Element, device::Sum>(launch);
    case Wire::kLL128:
      return messages ? device::run_ll_messages<device::LL128Wire, Element>(launch)
                      : device::run_ll<device::LL128Wire, Element, device::Sum>(launch);
    default:
      return messages ? device::run_simple_messages<Element>(launch) : device::run_simple<Element, device::Sum>(launch);
  }
}

/// Connections on which all goes to outputs have none.
void drop_slots(const program::Program& program, std::span<tutti_cuda_link> links) {
  const program::SlotPeers peers = program::slot_peers(program);
  for (uint32_t peer = 0; peer < links.size(); ++peer) {
    if (!peers.senders.contains(peer)) links[peer].from = nullptr;
    if (!peers.receivers.contains(peer)) links[peer].to = nullptr;
  }
}

}  // namespace

KernelMachine::KernelMachine(const Options& options)
    : options_(options), link_bytes_(uint64_t{options.ctas} * options.layout.slot_count * options.layout.slot_stride) {
  const size_t ranks = options.rank_count;
  link_bytes_ = (link_bytes_ + sizeof(Line) - 1) / sizeof(Line) * sizeof(Line);
  slots_.resize(ranks * ranks * link_bytes_ / sizeof(Line));
  // As a flag wrap-around leaves slots: with flags that are older than any that is to come.
  const uint32_t old = options.first_number - options.layout.slot_count;
  const std::array<uint32_t, 4> words = {old, old, old, old};
  for (Line& line : slots_) {
    for (size_t at = 0; at < sizeof line; at += sizeof words) std::memcpy(line.bytes.data() + at, &words, sizeof words);
  }
  tutti_cuda_mailbox mailbox{};
  // No message has come for so long that `tail` looks new if compared by its sign.
  mailbox.tail = options.first_number - options.tail_rest;
  mailbox.done = options.first_number - options.done_rest;
  mailboxes_.assign(ranks * ranks * options.ctas, mailbox);
  const tutti_cuda_sequence sequence = {options.first_number, options.first_number};
  programs_.assign(ranks, std::vector<tutti_cuda_sequence>(options.ctas, sequence));
  messages_.assign(ranks, std::vector<tutti_cuda_sequence>(options.ctas * ranks * 2, sequence));
  progress_.assign(ranks, std::vector<tutti_cuda_progress>(options.ctas));
  tutti_cuda_control control{};
  control.peer = TUTTI_CUDA_NO_PEER;
  controls_.assign(ranks, control);
  scratch_.resize(ranks);
  if (options_.hosts > 1) start_relays();
}

void KernelMachine::start_relays() {
  RelayedLinks::Options options;
  options.rank_count = options_.rank_count;
  options.hosts = options_.hosts;
  options.count = options_.ctas;
  options.layout = options_.layout;
  options.first_number = options_.first_number;
  options.on_failure = [this](const Status& failure) {
    {
      const std::lock_guard lock(relays_mutex_);
      if (relay_failure_.empty()) relay_failure_ = failure.text();
    }
    abort();
  };
  relays_ = std::make_unique<RelayedLinks>(std::move(options));
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    const std::vector<tutti_cuda_link> links = links_of(rank);
    for (uint32_t peer = 0; peer < options_.rank_count; ++peer) {
      if (!relays_->relayed(rank, peer)) continue;
      relays_->start(rank, peer, const_cast<uint8_t*>(links[peer].from), links[peer].of);
    }
  }
}

tutti_cuda_launch KernelMachine::launch(uint32_t rank) {
  const uint32_t ranks = options_.rank_count;
  tutti_cuda_launch launch{};
  launch.struct_size = sizeof launch;
  launch.data_type = options_.floats ? TUTTI_FLOAT32 : TUTTI_UINT8;
  launch.reduce_op = TUTTI_SUM;
  launch.thread_count = options_.threads;
  launch.rank = rank;
  launch.rank_count = ranks;
  launch.slot_count = options_.layout.slot_count;
  launch.slot_stride = options_.layout.slot_stride;
  launch.control = &controls_[rank];
  launch.timeout_ns = options_.timeout_ns;
  launch.program_count = 1;
  launch.sequences = messages_[rank].data();
  const std::vector<tutti_cuda_link> links = links_of(rank);
  if (!wants_large(rank) && !backend::is_large(ranks, {})) {
    backend::place_links(links, launch);
    return launch;
  }
  Tables& tables = tables_.emplace_back();
  for (uint32_t row = 0; row < backend::LinkTable::kRows; ++row) {
    tables.links.insert(tables.links.end(), links.begin(), links.end());
  }
  launch.tables.links = tables.links.data();
  return launch;
}

std::vector<tutti_cuda_link> KernelMachine::links_of(uint32_t rank) {
  const uint32_t ranks = options_.rank_count;
  std::vector<tutti_cuda_link> links(ranks);
  auto* const slots = reinterpret_cast<uint8_t*>(slots_.data());
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    tutti_cuda_link& link = links[peer];
    link.to = slots + (uint64_t{peer} * ranks + rank) * link_bytes_;
    link.from = slots + (uint64_t{rank} * ranks + peer) * link_bytes_;
    link.at = mailboxes_.data() + (size_t{peer} * ranks + rank) * options_.ctas;
    link.of = mailboxes_.data() + (size_t{rank} * ranks + peer) * options_.ctas;
    if (options_.scatters) scatter(link);
    if (relays_ == nullptr || !relays_->relayed(rank, peer)) continue;
    link.to = relays_->to(rank, peer);
    link.at = relays_->at(rank, peer);
  }
  return links;
}

/// The CTAs take the slots in the opposite order. A kernel that does not look for scattered slots writes to a page that
/// does not exist.
void KernelMachine::scatter(tutti_cuda_link& link) {
  const uint64_t bytes = options_.layout.slot_count * options_.layout.slot_stride;
  std::vector<tutti_cuda_slots>& places = scattered_.emplace_back();
  for (uint32_t cta = 0; cta < options_.ctas; ++cta) {
    const uint64_t at = (options_.ctas - 1 - cta) * bytes;
    places.push_back({link.to + at, link.from + at});
  }
  link.to = reinterpret_cast<uint8_t*>(uintptr_t{1});
  link.from = link.to;
  link.scattered = places.data();
}

tutti_cuda_launch KernelMachine::launch(uint32_t rank, const ProgramCall& call, uint32_t ctas) {
  tutti_cuda_launch launch = KernelMachine::launch(rank);
  launch.sequences = programs_[rank].data();
  launch.input = call.inputs[rank].data();
  launch.output = call.outputs[rank].data();
  const program::Program& program = call.programs[rank];
  std::vector<tutti_cuda_link> links = links_of(rank);
  if (call.registered) drop_slots(program, links);
  backend::Call parts;
  parts.collective = call.collective;
  parts.type = options_.floats ? DataType::kFloat32 : DataType::kUint8;
  parts.count = call.block_bytes / size_of(parts.type);
  backend::LaunchShape shape;
  shape.ctas = ctas;
  if (options_.wire != Wire::kSimple) shape.max_threads = options_.threads;
  shape.layout = call.layout;
  if (wants_large(rank) || backend::is_large(options_.rank_count, {&program, 1})) {
    const backend::LargePrograms large({&program, 1}, rank, options_.rank_count);
    Tables& tables = tables_.emplace_back(
        Tables{std::move(links), std::vector<uint64_t>(large.bytes() / sizeof(uint64_t)), call.strands[rank]});
    const std::vector<std::byte> block = large.encode(tables.programs.data(), tables.links, tables.links.data());
    std::memcpy(tables.programs.data(), block.data(), block.size());
    shape.tables.programs = reinterpret_cast<const tutti_cuda_large_program*>(tables.programs.data());
    shape.tables.first = *shape.tables.programs;
    shape.tables.links = tables.links.data();
    if (tables.strands.strand_count > 0) {
      if (options_.drops_waits) std::fill(std::begin(tables.strands.after), std::end(tables.strands.after), 0);
      shape.tables.strands = &tables.strands;
      shape.tables.progress = progress_[rank].data();
      shape.tables.strand_count = backend::ctas_of_channel({&tables.strands, 1});
    }
    const uint64_t bytes = backend::scratch_bytes({&program, 1}, call.block_bytes);
    if (bytes > 0) shape.tables.scratch = *scratch_[rank].memory.reserve(bytes);
  } else {
    backend::place_links(links, launch);
  }
  backend::encode_collective(parts, program, shape, launch);
  if (call.registered) {
    launch.place = static_cast<uint32_t>(options_.seed) | 1;
    for (uint32_t peer = 0; peer < options_.rank_count; ++peer) launch.outputs[peer] = call.outputs[peer].data();
  }
  // Some ranks run each kernel: their messages are the same.
  if ((options_.seed >> rank % 64 & 1) != 0) launch.one_hop = {};
  return launch;
}

std::string KernelMachine::run(std::span<const ProgramCall> calls, uint32_t ctas) {
  std::vector<std::vector<tutti_cuda_launch>> launches(options_.rank_count);
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    for (const ProgramCall& call : calls) launches[rank].push_back(launch(rank, call, ctas));
  }
  return run(launches);
}

bool KernelMachine::is_at_rest() const {
  for (const std::vector<tutti_cuda_progress>& of_rank : progress_) {
    for (const tutti_cuda_progress& progress : of_rank) {
      constexpr tutti_cuda_progress kNone{};
      if (std::memcmp(&progress, &kNone, sizeof kNone) != 0) return false;
    }
  }
  return true;
}

void KernelMachine::abort() {
  for (tutti_cuda_control& control : controls_) __atomic_store_n(&control.abort, 1, __ATOMIC_RELEASE);
}

void KernelMachine::end_abort() {
  for (tutti_cuda_control& control : controls_) control.abort = 0;
}

std::string KernelMachine::run(std::span<const std::vector<tutti_cuda_launch>> launches) {
  const bool slices = options_.wire == Wire::kSimple;
  if (options_.is_silent_of_gaps || options_.counts_signals) {
    emulator::change_stores([this](const uint32_t* word, uint32_t number) { return number_to_store(word, number); });
  }
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    ranks.emplace_back([&, rank] {
      uint64_t seed = options_.seed + rank;
      for (const tutti_cuda_launch& launch : launches[rank]) {
        std::vector<std::thread> ctas;
        for (uint32_t cta = 0; cta < device::ctas_of(launch); ++cta) {
          emulator::LaunchShape shape;
          shape.cta = cta % launch.cta_count;
          shape.row = cta / launch.cta_count;
          shape.cta_count = launch.cta_count;
          shape.threads = slices ? device::kPipelineThreads : options_.threads;
          shape.seed = seed = seed * 31 + 7;
          constexpr uint32_t kStageCounts[] = {device::kLeastStages, device::kSmallSize.stages, device::kMostStages};
          const uint32_t stages = kStageCounts[seed / 8 % std::size(kStageCounts)];
          shape.dynamic_shared_bytes = slices && options_.stages ? stages * device::kStageBytes : 0;
          ctas.emplace_back([&, shape] {
            emulator::run_cta(shape, [&] {
              return options_.floats ? run_kernel<float>(options_.wire, launch)
                                     : run_kernel<uint8_t>(options_.wire, launch);
            });
          });
        }
        for (std::thread& cta : ctas) cta.join();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  emulator::change_stores({});
  return describe();
}

bool KernelMachine::is_count(const uint32_t* word) const {
  for (const std::vector<tutti_cuda_progress>& of_rank : progress_) {
    for (const tutti_cuda_progress& progress : of_rank) {
      if (word >= std::begin(progress.complete) && word < std::end(progress.complete)) return true;
    }
  }
  return false;
}

uint32_t KernelMachine::number_to_store(const uint32_t* word, uint32_t number) {
  if (options_.counts_signals && is_count(word)) {
    signals_.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(options_.signal_time);
  }
  return options_.is_silent_of_gaps ? without_gaps(word, number) : number;
}

/// What a receiver stores instead of a number: a done signal is no later than the data signal of the sender.
uint32_t KernelMachine::without_gaps(const uint32_t* word, uint32_t number) const {
  const auto* const first = reinterpret_cast<const uint8_t*>(mailboxes_.data());
  const auto offset = static_cast<size_t>(reinterpret_cast<const uint8_t*>(word) - first);
  const size_t index = offset / sizeof(tutti_cuda_mailbox);
  if (index >= mailboxes_.size() || word != &mailboxes_[index].done) return number;
  const size_t ranks = options_.rank_count;
  const size_t sender = index / options_.ctas / ranks;
  const size_t receiver = index / options_.ctas % ranks;
  const size_t back = (receiver * ranks + sender) * options_.ctas + index % options_.ctas;
  const uint32_t sent = __atomic_load_n(&mailboxes_[back].tail, __ATOMIC_ACQUIRE);
  return static_cast<int32_t>(number - sent) > 0 ? sent : number;
}

std::string KernelMachine::describe() {
  {
    const std::lock_guard lock(relays_mutex_);
    if (!relay_failure_.empty()) return relay_failure_;
  }
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    const tutti_cuda_control& control = controls_[rank];
    if (control.fault == 0) continue;
    return fmt::format("rank {} gave up ({}): it waited for rank {} on CTA {}", rank, control.fault, control.peer,
                       control.channel);
  }
  return {};
}

}  // namespace tutti::test
