// SPDX-License-Identifier: Apache-2.0
// Calls made ready for kernels: plans lowered, and cut for their sizes. Kept for as long as the communicator lives.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "backend/call.h"
#include "backend/call_key.h"
#include "backend/cuda/launch_builder.h"
#include "backend/cuda/link_table.h"
#include "backend/cuda/scratch_memory.h"
#include "backend/cuda/stripes.h"
#include "backend/plans.h"
#include "device/cuda/runtime.h"
#include "program/program.h"
#include "transport/gpu_links.h"

namespace tutti::backend {

/// A call without its buffers, and the protocol that launches it.
struct GpuCall {
  tutti_cuda_launch launch{};
  /// By rank, for the small form. In the large form, the launch has them in memory of the GPU.
  std::vector<tutti_cuda_link> links;
  uint32_t protocol = 0;
  uint32_t network = 0;  ///< of the call
  const tutti_protocol_ops* ops = nullptr;
  void* plugin = nullptr;
  bool copies = false;         ///< elements are moved, not combined: any type of their size does
  bool to_registered = false;  ///< peers store to registered outputs, whose addresses are set for each call
  bool has_side = false;       ///< `launch.copies` has a side stream
  /// One per message of the launch; empty: the call is no collective that runs as messages.
  std::vector<backend::Hop> hops;
  std::vector<std::unique_ptr<GpuCall>> next;  ///< further launches of messages of the same call
};

/// The widest unsigned integer type for copies. `bits` is the OR of all addresses and lengths: all of them are
/// multiples of its size.
uint32_t copy_type(uint64_t bits);
inline uint64_t address_bits(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

/// One thread at a time.
class GpuPrograms {
 public:
  struct Options {
    uint32_t rank = 0;
    int device = 0;
    tutti_cuda_control* control = nullptr;     ///< as the GPU sees it
    tutti_cuda_sequence* sequences = nullptr;  ///< sequences of all CTAs
    uint64_t timeout_ns = 0;
    uint32_t most_ctas = 1;     ///< CTAs of a launch of a program, which all run at the same time
    uint32_t message_ctas = 1;  ///< for each kind of messages, at most
    bool is_limited = false;    ///< the job limits collectives to fewer CTAs than a launch of messages has
    bool shares_gpu = false;    ///< other ranks' kernels run on this GPU
    /// Load the kernels of all protocols at once: kernels of a different rank may run in this context.
    bool load_first = false;
  };
  /// Fails where kernels cannot be loaded.
  static Result<std::unique_ptr<GpuPrograms>> create(const Options& options, const tuner::Selector& selector,
                                                     const Plans& plans, transport::GpuLinks& links);

  /// The prepared collective, without its buffers and scalar. The first call of a shape may wait for peers.
  Result<GpuCall*> prepare(const Call& call);

  /// Loads the kernels that only calls with registered outputs run.
  Status load_for_registered();

  /// Makes `call` an empty launch of messages with a protocol, over a network.
  Status begin_messages(uint32_t protocol, uint32_t network, GpuCall& call);
  /// Stripes of a message: equal on both ends, which know its size, type and protocol alone.
  uint32_t stripes_for(uint32_t protocol, uint32_t channels) const;
  /// Puts messages into it; returns where each went.
  Result<std::vector<uint32_t>> lay_out(std::span<const backend::Message> messages, GpuCall& call) const;
  /// Give the messages of a launch the slots that they are received in, and sent to. The latter may wait until peers
  /// have made the same call, so all launches of a group offer before one reaches.
  Status offer(GpuCall& call);
  Status reach(GpuCall& call);
  const tuner::Selector& selector() const { return selector_; }
  uint32_t rank_count() const { return plans_.rank_count(); }

 private:
  /// A collective's plan on this rank, lowered, for every channel.
  struct Program {
    std::vector<program::Program> channels;  // a single program if all are equal
    tutti_slot_layout layout{};              // of the connections, as calls are cut for these programs
    bool is_large = false;                   // their launches have the large form
    cuda::DeviceMemory on_device;            // small form: the programs if they differ; large form: LargePrograms
    tutti_cuda_large_program first{};        // large form: a copy of the first program of on_device
    std::vector<program::Strands> strands;   // of each program; empty: no program has strands
    cuda::DeviceMemory strands_on_device;    // the same
    uint32_t most_channels = 0;              // as each channel takes a CTA for each strand
    bool direct_store = false;               // some messages go to registered outputs
  };
  GpuPrograms(const Options& options, const tuner::Selector& selector, const Plans& plans, transport::GpuLinks& links);

  bool direct_store(const tuner::Decision& decision, const Call& call) const;
  Result<Program*> program(const tuner::Decision& decision, const Call& call, bool in_place);
  uint32_t channels_of(const tuner::Decision& decision) const;
  Result<ChannelPlans> plans_of(const tuner::Decision& decision, const Call& call, Program& program) const;
  Status lower(const tuner::Decision& decision, const Call& call, bool in_place, Program& program) const;
  Result<std::unique_ptr<GpuCall>> make(const Call& call, bool in_place);
  Result<std::unique_ptr<GpuCall>> make_messages(const tuner::Decision& decision, const Call& call, bool in_place,
                                                 std::vector<backend::Hop> hops);
  Result<std::unique_ptr<GpuCall>> make_launch(const tuner::Decision& decision, uint64_t block_bytes,
                                               std::span<const backend::Hop> hops);
  Result<std::optional<std::vector<backend::Hop>>> hops_of(const tuner::Decision& decision, const Call& call) const;
  Result<bool> needs_messages(const tuner::Decision& decision, Collective collective) const;
  bool gains_by_messages(const tuner::Decision& decision, const Call& call) const;
  Result<std::unique_ptr<GpuCall>> make_copies(const tuner::Decision& decision, const Call& call, bool in_place);
  Status begin(uint32_t protocol, uint32_t network, transport::Traffic traffic, GpuCall& call);
  Status load(uint32_t protocol);
  Status place_on_device(Program& program);
  /// The links of launches of the large form.
  struct Links {
    LinkTable table;
    cuda::DeviceMemory on_device;
  };
  Result<const tutti_cuda_link*> place_links(const GpuCall& call, transport::Traffic traffic, uint32_t row,
                                             std::span<const tutti_cuda_link> links);
  Status place_message_links(GpuCall& call);
  Status offer(const transport::GpuKey& key, tutti_cuda_link& link);
  Status reach(const transport::GpuKey& key, tutti_cuda_link& link);
  Status connect(Program& program, const tuner::Decision& decision, GpuCall& call);
  Status place_large(Program& program, uint32_t row, GpuCall& call);
  Result<std::vector<transport::Ports>> ports_of(const tuner::Decision& decision, uint32_t peer) const;

  Result<uint8_t*> allocate_scratch(uint64_t bytes);

  Options options_;
  const tuner::Selector& selector_;
  const Plans& plans_;
  transport::GpuLinks& links_;
  std::vector<cuda::DeviceMemory> scratch_buffers_;
  ScratchMemory scratch_{[this](uint64_t bytes) { return allocate_scratch(bytes); }};
  cuda::DeviceMemory progress_;  // by channel; empty: no program has strands so far
  std::vector<bool> loaded_;     // by protocol: its kernels are on the GPU
  std::map<std::tuple<uint32_t, uint32_t, transport::Traffic>, Links> tables_;  // by protocol and network
  std::map<CallKey, std::unique_ptr<Program>> programs_;
  ByShape<GpuCall> kept_;
};

}  // namespace tutti::backend
