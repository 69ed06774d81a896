// SPDX-License-Identifier: Apache-2.0
// What does running a plan cost on GPUs? All-reduces with LL, one process, within CUDA graphs: the plans of the
// algorithm plugins run by the executor, beside a kernel written by hand for one-shot. Every result is checked.
//
//   gpu_plan [GPUs]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "gpu_plan/plans.h"
#include "tutti/device/cuda/kernel.h"
#include "tutti/device/cuda/one_loop.h"

namespace tutti::bench {
namespace {

using device::CudaLaunch;
using Team = device::CudaTeam<float, device::Sum>;

constexpr uint32_t kThreads = 512;
constexpr uint32_t kMaxChannels = 64;
constexpr uint32_t kSlots = 8;
constexpr uint64_t kSlotBytes = 16 << 10;  // payload
constexpr uint64_t kStride = 2 * kSlotBytes + 64;
constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int kCallsPerGraph = 50;
constexpr int kRepeats = 7;

void check(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_plan.cu:%d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::exit(1);
}
#define CUDA(call) check(call, #call, __LINE__)

/// One rank: a GPU with its buffers and its ends of all connections.
struct Rank {
  cudaStream_t stream{};
  cudaEvent_t begin{}, end{};
  float* input{};
  float* output{};
  uint8_t* slots{};                 ///< that others write: by channel, then by sender
  uint64_t* heads{};                ///< that receivers write: by channel, then by receiver
  tutti_connection* connections{};  ///< by channel: senders to all ranks, receivers from all
  uint32_t* counters{};             ///< of the kernel written by hand
  std::vector<float> values;
};

class Gpus {
 public:
  explicit Gpus(uint32_t count) : ranks_(count) {
    std::mt19937 random(std::random_device{}());
    for (uint32_t i = 0; i < count; ++i) {
      Rank& rank = ranks_[i];
      CUDA(cudaSetDevice(static_cast<int>(i)));
      for (uint32_t j = 0; j < count; ++j) {
        if (j != i) CUDA(cudaDeviceEnablePeerAccess(static_cast<int>(j), 0));
      }
      CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      CUDA(cudaEventCreate(&rank.begin));
      CUDA(cudaEventCreate(&rank.end));
      CUDA(cudaMalloc(&rank.input, kMaxBytes));
      CUDA(cudaMalloc(&rank.output, kMaxBytes));
      CUDA(cudaMalloc(&rank.slots, kMaxChannels * count * kSlots * kStride));
      CUDA(cudaMalloc(&rank.heads, kMaxChannels * count * sizeof(uint64_t)));
      CUDA(cudaMalloc(&rank.connections, kMaxChannels * 2 * count * sizeof(tutti_connection)));
      CUDA(cudaMalloc(&rank.counters, kMaxChannels * 128));
      rank.values.resize(kMaxBytes / sizeof(float));
      for (float& value : rank.values) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
      CUDA(cudaMemcpy(rank.input, rank.values.data(), kMaxBytes, cudaMemcpyHostToDevice));
    }
  }

  uint32_t count() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& operator[](uint32_t rank) { return ranks_[rank]; }

  /// As after connect: no message sent, outputs poisoned.
  void reset() {
    const uint32_t n = count();
    for (uint32_t r = 0; r < n; ++r) {
      Rank& rank = ranks_[r];
      CUDA(cudaSetDevice(static_cast<int>(r)));
      CUDA(cudaMemset(rank.slots, 0, kMaxChannels * n * kSlots * kStride));
      CUDA(cudaMemset(rank.heads, 0, kMaxChannels * n * sizeof(uint64_t)));
      CUDA(cudaMemset(rank.output, 0xff, kMaxBytes));
      CUDA(cudaMemset(rank.counters, 0, kMaxChannels * 128));
      std::vector<tutti_connection> connections(kMaxChannels * 2 * n);
      for (uint32_t channel = 0; channel < kMaxChannels; ++channel) {
        for (uint32_t peer = 0; peer < n; ++peer) {
          tutti_connection& to = connections[(channel * 2) * n + peer];
          to = connection(peer);
          to.slots = ranks_[peer].slots + (size_t{channel} * n + r) * kSlots * kStride;
          to.head = rank.heads + channel * n + peer;
          tutti_connection& from = connections[(channel * 2 + 1) * n + peer];
          from = connection(peer);
          from.slots = rank.slots + (size_t{channel} * n + peer) * kSlots * kStride;
          from.head = ranks_[peer].heads + channel * n + r;
        }
      }
      CUDA(cudaMemcpy(rank.connections, connections.data(), connections.size() * sizeof(tutti_connection),
                      cudaMemcpyHostToDevice));
      CUDA(cudaDeviceSynchronize());
    }
  }

  /// Elements of any rank that are not the sum of all inputs.
  size_t wrong(size_t elements) {
    size_t wrong = 0;
    std::vector<float> got(elements);
    for (Rank& rank : ranks_) {
      CUDA(cudaMemcpy(got.data(), rank.output, elements * sizeof(float), cudaMemcpyDeviceToHost));
      for (size_t i = 0; i < elements; ++i) {
        float sum = 0;  // whole numbers: exact in any order
        for (const Rank& other : ranks_) sum += other.values[i];
        wrong += got[i] == sum ? 0 : 1;
      }
    }
    return wrong;
  }

 private:
  static tutti_connection connection(uint32_t peer) {
    tutti_connection made{};
    made.slot_stride = kStride;
    made.payload_bytes = kSlotBytes;
    made.slot_count = kSlots;
    made.peer = peer;
    return made;
  }
  std::vector<Rank> ranks_;
};

/// One-shot LL by hand: no plan, no credits (two generations of slots: who has heard from all may overwrite).
struct HandArgs {
  uint8_t* slots[device::kMaxKernelRanks];
  const float* input;
  float* output;
  uint32_t* counters;
  uint64_t elements;
  uint32_t rank, ranks;
};
__global__ void __launch_bounds__(kThreads) one_shot_by_hand(const __grid_constant__ HandArgs args) {
  const uint32_t flag = args.counters[blockIdx.x * 32] + 1;
  const uint64_t lines = (args.elements + 1) / 2;
  const uint64_t half = kMaxBytes * 2 / 2;  // bytes of a sender's words in one generation: at most 512 KiB of data
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t at = (flag & 1) * args.ranks * half + i * 16;
    const float2 own = reinterpret_cast<const float2*>(args.input)[i];
    for (uint32_t k = 1; k < args.ranks; ++k) {
      const uint32_t to = (args.rank + k) % args.ranks;
      asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(args.slots[to] + at + args.rank * half),
                   "r"(__float_as_uint(own.x)), "r"(flag), "r"(__float_as_uint(own.y)), "r"(flag)
                   : "memory");
    }
    float2 sum{0, 0};
    for (uint32_t from = 0; from < args.ranks; ++from) {
      float2 value = own;
      if (from != args.rank) {
        uint32_t a, fa, b, fb;
        do {
          asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(a), "=r"(fa), "=r"(b), "=r"(fb)
                       : "l"(args.slots[args.rank] + at + from * half)
                       : "memory");
        } while (fa != flag || fb != flag);
        value = {__uint_as_float(a), __uint_as_float(b)};
      }
      sum.x += value.x;
      sum.y += value.y;
    }
    reinterpret_cast<float2*>(args.output)[i] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) args.counters[blockIdx.x * 32] = flag;
}

CudaLaunch launch_of(const plan::Plan& plan, const Rank& rank, size_t elements, uint32_t blocks) {
  CudaLaunch launch{};
  launch.plan = plan.view();
  launch.plan.steps = nullptr;
  launch.plan.peers = nullptr;
  if (plan.steps.size() > device::kMaxKernelSteps || plan.peers.size() > device::kMaxKernelPeers) {
    std::fprintf(stderr, "the plan is too long for kernel parameters\n");
    std::exit(1);
  }
  std::copy(plan.steps.begin(), plan.steps.end(), launch.steps);
  std::copy(plan.peers.begin(), plan.peers.end(), launch.peers);
  launch.connections = rank.connections;
  launch.part_elements = ((elements + blocks - 1) / blocks + 31) / 32 * 32;
  tutti_work& work = launch.work;
  work.data_type = TUTTI_FLOAT32;
  work.reduce_op = TUTTI_SUM;
  work.element_bytes = sizeof(float);
  work.input = rank.input;
  work.output = rank.output;
  work.count = elements;
  work.slice_elements = kSlotBytes / sizeof(float);
  work.chunk_elements = work.slice_elements * kSlots / 2;
  return launch;
}

/// The same call lowered; false where one loop does not cover it.
bool lowered_launch_of(const plan::Plan& plan, const Rank& rank, size_t elements, uint32_t blocks,
                       device::LoweredLaunch& launch) {
  if (!device::lower(plan.view(), kSlots, launch)) return false;
  launch.input = reinterpret_cast<const uint8_t*>(rank.input);
  launch.output = reinterpret_cast<uint8_t*>(rank.output);
  launch.connections = rank.connections;
  launch.bytes = elements * sizeof(float);
  launch.part_bytes = ((elements + blocks - 1) / blocks + 31) / 32 * 32 * sizeof(float);
  const uint64_t filled = std::min(launch.part_bytes, launch.bytes);
  launch.chunk_bytes = ((filled + plan.chunks - 1) / plan.chunks + 63) / 64 * 64;
  launch.slot_stride = kStride;
  return launch.chunk_bytes <= kSlotBytes;
}

/// Median µs of a call, in graphs of many; all ranks' results checked.
template <class Launch>
double measure(Gpus& gpus, size_t elements, Launch&& launch, size_t& wrong) {
  gpus.reset();
  std::vector<cudaGraphExec_t> graphs(gpus.count());
  for (uint32_t r = 0; r < gpus.count(); ++r) {
    CUDA(cudaSetDevice(static_cast<int>(r)));
    CUDA(cudaStreamBeginCapture(gpus[r].stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kCallsPerGraph; ++i) launch(r);
    cudaGraph_t graph{};
    CUDA(cudaStreamEndCapture(gpus[r].stream, &graph));
    CUDA(cudaGraphInstantiate(&graphs[r], graph, 0));
    CUDA(cudaGraphUpload(graphs[r], gpus[r].stream));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamSynchronize(gpus[r].stream));
  }
  std::vector<float> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (uint32_t r = 0; r < gpus.count(); ++r) {
      CUDA(cudaSetDevice(static_cast<int>(r)));
      CUDA(cudaEventRecord(gpus[r].begin, gpus[r].stream));
      CUDA(cudaGraphLaunch(graphs[r], gpus[r].stream));
      CUDA(cudaEventRecord(gpus[r].end, gpus[r].stream));
    }
    float shortest = 1e9f;  // the rank that started last waited for nobody
    for (uint32_t r = 0; r < gpus.count(); ++r) {
      CUDA(cudaSetDevice(static_cast<int>(r)));
      CUDA(cudaStreamSynchronize(gpus[r].stream));
      float ms = 0;
      CUDA(cudaEventElapsedTime(&ms, gpus[r].begin, gpus[r].end));
      shortest = std::min(shortest, ms);
    }
    if (repeat > 0) times.push_back(shortest);
  }
  wrong = gpus.wrong(elements);
  for (cudaGraphExec_t graph : graphs) CUDA(cudaGraphExecDestroy(graph));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2] * 1e3 / kCallsPerGraph;
}

/// Parameters of a size, and a kernel that only reads the last of them.
template <size_t kBytes>
struct Parameters {
  uint32_t* out;
  uint8_t rest[kBytes - 8];
};
template <size_t kBytes>
__global__ void __launch_bounds__(kThreads) nothing(const __grid_constant__ Parameters<kBytes> parameters) {
  if (parameters.rest[kBytes - 9] != 0) *parameters.out = 1;
}
/// What every plan pays, whatever it does: connections in, connections out.
__global__ void __launch_bounds__(kThreads) connections_only(const __grid_constant__ CudaLaunch launch) {
  __shared__ device::BlockConnections connections;
  tutti_connection* const mine = launch.connections + size_t{blockIdx.x} * 2 * launch.plan.rank_count;
  connections.load(launch, mine);
  __syncthreads();
  connections.store(launch, mine);
}

template <size_t kBytes>
double time_of_nothing(Gpus& gpus) {
  size_t wrong = 0;
  return measure(
      gpus, 0,
      [&](uint32_t r) {
        nothing<kBytes><<<1, kThreads, 0, gpus[r].stream>>>(Parameters<kBytes>{gpus[r].counters, {}});
        CUDA(cudaGetLastError());
      },
      wrong);
}

CudaLaunch launch_of(const plan::Plan& plan, const Rank& rank, size_t elements, uint32_t blocks);

void print_floors(Gpus& gpus, const plan::Plan& plan) {
  size_t wrong = 0;
  const double connections = measure(
      gpus, 0,
      [&](uint32_t r) {
        connections_only<<<1, kThreads, 0, gpus[r].stream>>>(launch_of(plan, gpus[r], 2, 1));
        CUDA(cudaGetLastError());
      },
      wrong);
  std::printf(
      "floors: a kernel with 64 B of parameters %.2f µs, 1 KiB %.2f, 2 KiB %.2f, 4 KiB %.2f; connections in and "
      "out %.2f\n",
      time_of_nothing<64>(gpus), time_of_nothing<1024>(gpus), time_of_nothing<2048>(gpus), time_of_nothing<4000>(gpus),
      connections);
}

uint32_t blocks_for(size_t bytes) {
  return static_cast<uint32_t>(std::clamp<size_t>(bytes / (kThreads * 8), 1, 32));
}

/// A thread per line, in whole warps: those without one would only be in the way.
uint32_t threads_for(size_t bytes, uint32_t blocks) {
  const size_t lines = (bytes / blocks + 7) / 8;
  return static_cast<uint32_t>(std::clamp<size_t>((lines + 31) / 32 * 32, 32, kThreads));
}

int run(uint32_t count) {
  Gpus gpus(count);
  std::printf("%u GPUs, all_reduce float32 sum, LL, in a graph, median µs\n%10s %8s %12s", count, "bytes", "blocks",
              "by hand");
  const char* const algorithms[] = {"direct/one-shot", "direct/two-shot", "ring"};
  std::vector<std::vector<plan::Plan>> plans;
  for (const char* algorithm : algorithms) {
    auto made = all_reduce_plans(algorithm, count);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", std::string(made.status().text()).c_str());
      return 1;
    }
    plans.push_back(*std::move(made));
    std::printf(" %16s %11s", algorithm, "lowered");
  }
  std::printf("\n");
  print_floors(gpus, plans[0][0]);
  size_t all_wrong = 0;
  for (size_t bytes = 8; bytes <= kMaxBytes; bytes *= bytes < 1024 ? 8 : 4) {
    const size_t elements = bytes / sizeof(float);
    const uint32_t blocks = blocks_for(bytes);
    const uint32_t threads = threads_for(bytes, blocks);
    size_t wrong = 0;
    std::printf("%10zu %8u", bytes, blocks);
    if (bytes <= kMaxBytes / 2) {
      const double hand = measure(
          gpus, elements,
          [&](uint32_t r) {
            HandArgs args{};
            for (uint32_t i = 0; i < count; ++i) args.slots[i] = gpus[i].slots;
            args.input = gpus[r].input;
            args.output = gpus[r].output;
            args.counters = gpus[r].counters;
            args.elements = elements;
            args.rank = r;
            args.ranks = count;
            one_shot_by_hand<<<blocks, threads, 0, gpus[r].stream>>>(args);
            CUDA(cudaGetLastError());
          },
          wrong);
      std::printf(" %10.2f%2s", hand, wrong == 0 ? "" : " !");
      all_wrong += wrong;
    } else {
      std::printf(" %12s", "-");
    }
    for (const auto& plan : plans) {
      const double time = measure(
          gpus, elements,
          [&](uint32_t r) {
            device::run_plan<device::LL, float, device::Sum>
                <<<blocks, threads, 0, gpus[r].stream>>>(launch_of(plan[r], gpus[r], elements, blocks));
            CUDA(cudaGetLastError());
          },
          wrong);
      std::printf(" %14.2f%2s", time, wrong == 0 ? "" : " !");
      all_wrong += wrong;
      device::LoweredLaunch lowered{};
      if (!lowered_launch_of(plan[0], gpus[0], elements, blocks, lowered)) {
        std::printf(" %9s%2s", "-", "");
        continue;
      }
      const double fast = measure(
          gpus, elements,
          [&](uint32_t r) {
            device::LoweredLaunch launch{};
            lowered_launch_of(plan[r], gpus[r], elements, blocks, launch);
            device::run_lowered<float, device::Sum><<<blocks, threads, 0, gpus[r].stream>>>(launch);
            CUDA(cudaGetLastError());
          },
          wrong);
      std::printf(" %9.2f%2s", fast, wrong == 0 ? "" : " !");
      all_wrong += wrong;
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("wrong elements: %zu\n", all_wrong);
  return all_wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) {
    std::printf("skipped: needs two GPUs or more\n");
    return 0;
  }
  if (argc > 1) count = std::min(count, std::atoi(argv[1]));
  return tutti::bench::run(static_cast<uint32_t>(std::min<int>(count, tutti::device::kMaxKernelRanks)));
}
