// SPDX-License-Identifier: Apache-2.0
#include "communicator/gpu_programs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "plan/lower.h"

namespace tutti::communicator {
namespace {

constexpr uint32_t kMinThreads = 64;
constexpr uint32_t kMaxThreads = 512;
constexpr uint64_t kThreadBytes = 8;  // of data that a thread moves at once, at least

/// Enough for each message of the busiest step, as far as they go: a power of two.
uint32_t threads_for(const tutti_cuda_program& program, uint64_t chunk_bytes) {
  uint32_t messages = 1;
  for (uint32_t s = 0; s < program.step_count; ++s) {
    const tutti_cuda_step& step = program.steps[s];
    if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0) continue;
    messages = std::max<uint32_t>({messages, step.send_count, step.recv_count});
  }
  const uint64_t places = std::bit_ceil((chunk_bytes + kThreadBytes - 1) / kThreadBytes);
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(places * messages), kMinThreads, kMaxThreads));
}

}  // namespace

GpuPrograms::GpuPrograms(const Options& options, const tuner::Selector& selector, const Plans& plans,
                         const std::vector<std::unique_ptr<transport::P2p>>& transports)
    : options_(options), selector_(selector), plans_(plans), transports_(transports) {}

Result<GpuCall*> GpuPrograms::prepare(const Call& call) {
  return kept_.get(call, static_cast<int>(options_.rank), [&](bool in_place) { return make(call, in_place); });
}

GpuCall GpuPrograms::begin(uint32_t protocol, const transport::P2pLane& lane) const {
  const tuner::Protocol& with = selector_.choices().protocols[protocol];
  GpuCall call;
  call.ops = with.ops;
  call.plugin = with.plugin;
  call.launch.struct_size = sizeof call.launch;
  transports_[protocol]->describe(lane, call.launch);
  call.launch.control = options_.control;
  call.launch.timeout_ns = options_.timeout_ns;
  return call;
}

GpuCall GpuPrograms::messages(uint32_t protocol) const {
  GpuCall call = begin(protocol, transports_[protocol]->messages());
  call.copies = true;
  call.launch.reduce_op = TUTTI_SUM;
  return call;
}

Result<std::unique_ptr<GpuCall>> GpuPrograms::make(const Call& call, bool in_place) {
  TUTTI_ASSIGN(tuner::Decision decision, selector_.choose({call.collective, call.type, call.reduction.op, call.count}));
  const transport::P2p& transport = *transports_[decision.protocol];
  decision.channels = std::min(decision.channels, transport.collective_ctas());
  TUTTI_ASSIGN(const Program* const program, GpuPrograms::program(decision, call, in_place));
  auto made = std::make_unique<GpuCall>(begin(decision.protocol, transport.collectives()));
  made->copies = !plan::reduces(call.collective);
  tutti_cuda_launch& launch = made->launch;
  launch.data_type = static_cast<uint32_t>(call.type);
  launch.reduce_op = made->copies ? TUTTI_SUM : static_cast<uint32_t>(call.reduction.op);
  launch.block_bytes = call.count * size_of(call.type);
  launch.divisor = call.reduction.op == ReduceOp::kAvg && !made->copies ? launch.rank_count : 0;
  launch.premultiplied = call.reduction.op == ReduceOp::kPreMulSum && !made->copies ? 1 : 0;
  launch.cta_count = decision.channels;
  const tutti_cuda_program& first = program->channels.front();
  launch.cut = plan::cut(launch.block_bytes, decision.channels, first, transport.layout());
  launch.thread_count = threads_for(first, launch.cut.chunk);
  launch.program_count = static_cast<uint32_t>(program->channels.size());
  launch.program = first;
  if (launch.program_count > 1) {
    launch.programs = reinterpret_cast<const tutti_cuda_program*>(program->on_device.data());
  }
  return made;
}

/// Lowered for all ranks, as what one does is also a matter of the others; this rank's, by channel.
Result<std::vector<tutti_cuda_program>> GpuPrograms::lower(const tuner::Decision& decision, const Call& call,
                                                           bool in_place) const {
  const uint32_t channels = std::min(decision.channels, selector_.choices().algorithms[decision.algorithm].channels);
  plan::Programs programs(channels);
  for (uint32_t channel = 0; channel < channels; ++channel) {
    for (uint32_t rank = 0; rank < plans_.rank_count(); ++rank) {
      TUTTI_ASSIGN(const plan::Plan plan,
                   plans_.request(decision, call.collective, rank, channel, static_cast<uint32_t>(call.root)));
      TUTTI_ASSIGN(programs[channel].emplace_back(), plan::lower(plan, in_place));
    }
  }
  plan::align(programs, transports_[decision.protocol]->layout());
  std::vector<tutti_cuda_program> own;
  for (const auto& channel : programs) own.push_back(channel[options_.rank]);
  return own;
}

Result<const GpuPrograms::Program*> GpuPrograms::program(const tuner::Decision& decision, const Call& call,
                                                         bool in_place) {
  const Name name{decision.algorithm,
                  decision.variant,
                  decision.channels,
                  static_cast<uint32_t>(call.collective),
                  static_cast<uint32_t>(call.root),
                  in_place};
  auto& program = programs_[name];
  if (program != nullptr) return program.get();
  const uint32_t slots = transports_[decision.protocol]->layout().slot_count / 2;  // senders may lag so far behind
  TUTTI_TRY(plans_.verify(decision, call.collective, static_cast<uint32_t>(call.root), in_place, 1, slots));
  auto made = std::make_unique<Program>();
  TUTTI_ASSIGN(made->channels, lower(decision, call, in_place));
  const tutti_cuda_program& first = made->channels.front();
  const bool same = std::all_of(made->channels.begin(), made->channels.end(), [&](const tutti_cuda_program& other) {
    return std::memcmp(&first, &other, sizeof first) == 0;
  });
  // Kernels whose messages are short run one order of ranks on all CTAs; see tutti_cuda_launch.programs.
  if (same) made->channels.resize(1);
  if (!same) {
    const cuda::DeviceScope device(options_.device);
    const cuda::CaptureScope capture;
    const size_t bytes = made->channels.size() * sizeof(tutti_cuda_program);
    TUTTI_ASSIGN(made->on_device, cuda::DeviceMemory::create(options_.device, bytes));
    TUTTI_CUDA_TRY(cudaMemcpy(made->on_device.data(), made->channels.data(), bytes, cudaMemcpyHostToDevice));
  }
  program = std::move(made);
  return program.get();
}

}  // namespace tutti::communicator
