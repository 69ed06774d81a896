// SPDX-License-Identifier: Apache-2.0
// Processes × threads × GPUs on any libnccl.so.2: every collective, type and operation checked, then timed over sizes.
//
//   nccl_like [--library FILE] [-p PROCESSES] [-t THREADS] [-g GPUS] [-b MIN] [-e MAX] [-n CALLS] [--share]
//
// As nccl-tests, a thread with several GPUs makes its calls in groups. --share lets ranks have GPUs in common, which
// NCCL refuses. Sizes in bytes of a rank's part; ends with 1 on any wrong result, 77 where GPUs are lacking.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "nccl.h"

namespace {

constexpr int kSkipped = 77;
constexpr unsigned kLimitSeconds = 240;
constexpr unsigned char kPoison = 0x5a;

struct Options {
  std::string library = "libnccl.so.2";
  int processes = 1;
  int threads = 1;
  int gpus = 1;
  size_t least = 8;
  size_t most = 16 << 20;
  int calls = 200;
  bool share = false;
  int ranks() const { return processes * threads * gpus; }
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "nccl_like: %s\n", what.c_str());
  _exit(1);
}

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CUDA(call) check((call), #call)

/// The functions of one library.
struct Library {
  explicit Library(const std::string& file) : handle(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) fail(dlerror());
  }
  template <class Function>
  Function* find(const char* name) const {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr) fail(dlerror());
    return reinterpret_cast<Function*>(symbol);
  }
  void check(ncclResult_t result, const char* call) const {
    if (result != ncclSuccess) fail(std::string(call) + ": " + error(result) + ": " + last(nullptr));
  }

  void* handle;
  decltype(ncclGetErrorString)* error = find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(ncclGetLastError)* last = find<decltype(ncclGetLastError)>("ncclGetLastError");
  decltype(ncclGetVersion)* version = find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(ncclGetUniqueId)* unique_id = find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(ncclCommInitRank)* init = find<decltype(ncclCommInitRank)>("ncclCommInitRank");
  decltype(ncclCommDestroy)* destroy = find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(ncclCommGetAsyncError)* async_error = find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(ncclGroupStart)* begin = find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(ncclGroupEnd)* end = find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(ncclAllReduce)* all_reduce = find<decltype(ncclAllReduce)>("ncclAllReduce");
  decltype(ncclReduceScatter)* reduce_scatter = find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  decltype(ncclAllGather)* all_gather = find<decltype(ncclAllGather)>("ncclAllGather");
  decltype(ncclBroadcast)* broadcast = find<decltype(ncclBroadcast)>("ncclBroadcast");
  decltype(ncclReduce)* reduce = find<decltype(ncclReduce)>("ncclReduce");
  decltype(ncclAlltoAll)* all_to_all = find<decltype(ncclAlltoAll)>("ncclAlltoAll");
  decltype(ncclGather)* gather = find<decltype(ncclGather)>("ncclGather");
  decltype(ncclScatter)* scatter = find<decltype(ncclScatter)>("ncclScatter");
  decltype(ncclSend)* send = find<decltype(ncclSend)>("ncclSend");
  decltype(ncclRecv)* recv = find<decltype(ncclRecv)>("ncclRecv");
};
#define NCCL(library, call) (library).check((library).call, #call)

enum class Kind {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv
};
struct Collective {
  Kind kind;
  const char* name;
  bool reduces;
};
constexpr std::array kCollectives = {
    Collective{Kind::kAllReduce, "all_reduce", true},    Collective{Kind::kReduceScatter, "reduce_scatter", true},
    Collective{Kind::kAllGather, "all_gather", false},   Collective{Kind::kBroadcast, "broadcast", false},
    Collective{Kind::kReduce, "reduce", true},           Collective{Kind::kAllToAll, "all_to_all", false},
    Collective{Kind::kGather, "gather", false},          Collective{Kind::kScatter, "scatter", false},
    Collective{Kind::kSendRecv, "send and recv", false},
};

/// Element types as the host reads and writes them. Values are small integers, exact in each of them.
struct Type {
  ncclDataType_t type;
  const char* name;
  size_t bytes;
  bool is_float;
  void (*write)(void*, int64_t);
  double (*read)(const void*);
};
/// Floats of 16 bits are computed from wider floats.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
void write(void* to, int64_t value) {
  const T typed(static_cast<Wide<T>>(value));
  std::memcpy(to, &typed, sizeof typed);
}
template <class T>
double read(const void* from) {
  T typed;
  std::memcpy(&typed, from, sizeof typed);
  return static_cast<double>(static_cast<Wide<T>>(typed));
}
template <class T>
constexpr Type type_of(ncclDataType_t type, const char* name, bool is_float) {
  return {type, name, sizeof(T), is_float, write<T>, read<T>};
}
constexpr std::array kTypes = {
    type_of<float>(ncclFloat, "float", true),       type_of<int8_t>(ncclInt8, "int8", false),
    type_of<uint8_t>(ncclUint8, "uint8", false),    type_of<int32_t>(ncclInt32, "int32", false),
    type_of<uint32_t>(ncclUint32, "uint32", false), type_of<int64_t>(ncclInt64, "int64", false),
    type_of<uint64_t>(ncclUint64, "uint64", false), type_of<__half>(ncclFloat16, "half", true),
    type_of<double>(ncclDouble, "double", true),    type_of<__nv_bfloat16>(ncclBfloat16, "bfloat16", true),
};
constexpr std::array<const char*, 5> kOperations = {"sum", "prod", "max", "min", "avg"};

/// The element of a rank's input.
int64_t value(uint64_t seed, int rank, size_t index, ncclRedOp_t op) {
  uint64_t x = seed + (index + 1) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  x ^= x >> 32;
  // At most six twos among eight ranks: 64, which all types hold.
  if (op == ncclProd) return (static_cast<uint64_t>(rank) + seed + index) % 8 < 6 && x % 8 == 0 ? 2 : 1;
  return static_cast<int64_t>(x % 7);
}

double reduced(uint64_t seed, int ranks, size_t index, ncclRedOp_t op) {
  double all = static_cast<double>(value(seed, 0, index, op));
  for (int rank = 1; rank < ranks; ++rank) {
    const auto next = static_cast<double>(value(seed, rank, index, op));
    all = op == ncclProd  ? all * next
          : op == ncclMax ? std::max(all, next)
          : op == ncclMin ? std::min(all, next)
                          : all + next;
  }
  return op == ncclAvg ? all / ranks : all;
}

/// The shared state of all processes and threads.
struct Shared {
  ncclUniqueId id;
  pthread_barrier_t barrier;
  std::atomic<size_t> wrong;
  std::atomic<size_t> cases;
};

struct Rank {
  int rank = 0;
  int device = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  char* input = nullptr;
  char* output = nullptr;
};

struct Call {
  Kind kind;
  size_t count;
  const Type& type;
  ncclRedOp_t op;
  int root;
};

/// One thread's ranks.
class Worker {
 public:
  Worker(const Options& options, const Library& nccl, Shared& shared, int first)
      : options_(options), nccl_(nccl), shared_(shared), ranks_(static_cast<size_t>(options.gpus)) {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    bytes_ = std::max(options.most, size_t{1} << 20) * static_cast<size_t>(options.ranks());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& one = ranks_[i];
      one.rank = first + static_cast<int>(i);
      one.device = one.rank % devices;
      CUDA(cudaSetDevice(one.device));
      CUDA(cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking));
      CUDA(cudaMalloc(reinterpret_cast<void**>(&one.input), bytes_));
      CUDA(cudaMalloc(reinterpret_cast<void**>(&one.output), bytes_));
      // A stream waits at its first use for all kernels, which may wait for this rank.
      CUDA(cudaMemsetAsync(one.output, 0, 1, one.stream));
      CUDA(cudaStreamSynchronize(one.stream));
    }
    NCCL(nccl_, begin());
    for (Rank& one : ranks_) {
      CUDA(cudaSetDevice(one.device));
      NCCL(nccl_, init(&one.comm, options.ranks(), shared.id, one.rank));
    }
    NCCL(nccl_, end());
  }

  void run() {
    for (const Collective& collective : kCollectives) {
      for (const Type& type : kTypes) check_type(collective, type);
    }
    meet();
    if (leads()) {
      std::printf("%zu cases checked over %d ranks, %zu elements wrong\n", shared_.cases.load(), options_.ranks(),
                  shared_.wrong.load());
      std::printf("%-14s %12s %12s %12s %10s\n", "collective", "bytes", "enqueue µs", "whole µs", "GB/s");
    }
    for (const Collective& collective : kCollectives) {
      for (size_t bytes = options_.least; bytes <= options_.most; bytes *= 8) time(collective, bytes);
    }
    meet();
    for (Rank& one : ranks_) NCCL(nccl_, destroy(one.comm));
  }

 private:
  bool leads() const { return ranks_.front().rank == 0; }
  void meet() { pthread_barrier_wait(&shared_.barrier); }

  void issue(const Rank& one, const Call& c) const {
    const int ranks = options_.ranks();
    const auto type = c.type.type;
    switch (c.kind) {
      case Kind::kAllReduce:
        return NCCL(nccl_, all_reduce(one.input, one.output, c.count, type, c.op, one.comm, one.stream));
      case Kind::kReduceScatter:
        return NCCL(nccl_, reduce_scatter(one.input, one.output, c.count, type, c.op, one.comm, one.stream));
      case Kind::kAllGather:
        return NCCL(nccl_, all_gather(one.input, one.output, c.count, type, one.comm, one.stream));
      case Kind::kBroadcast:
        return NCCL(nccl_, broadcast(one.input, one.output, c.count, type, c.root, one.comm, one.stream));
      case Kind::kReduce:
        return NCCL(nccl_, reduce(one.input, one.output, c.count, type, c.op, c.root, one.comm, one.stream));
      case Kind::kAllToAll:
        return NCCL(nccl_, all_to_all(one.input, one.output, c.count, type, one.comm, one.stream));
      case Kind::kGather:
        return NCCL(nccl_, gather(one.input, one.output, c.count, type, c.root, one.comm, one.stream));
      case Kind::kScatter:
        return NCCL(nccl_, scatter(one.input, one.output, c.count, type, c.root, one.comm, one.stream));
      case Kind::kSendRecv:
        NCCL(nccl_, begin());
        NCCL(nccl_, send(one.input, c.count, type, (one.rank + 1) % ranks, one.comm, one.stream));
        NCCL(nccl_, recv(one.output, c.count, type, (one.rank + ranks - 1) % ranks, one.comm, one.stream));
        return NCCL(nccl_, end());
    }
  }

  void issue(const Call& call) const {
    if (ranks_.size() == 1) return issue(ranks_.front(), call);
    NCCL(nccl_, begin());
    for (const Rank& one : ranks_) issue(one, call);
    NCCL(nccl_, end());
  }

  void wait() const {
    for (const Rank& one : ranks_) {
      CUDA(cudaSetDevice(one.device));
      CUDA(cudaStreamSynchronize(one.stream));
      ncclResult_t state = ncclSuccess;
      NCCL(nccl_, async_error(one.comm, &state));
      nccl_.check(state, "asynchronous error");
    }
  }

  void check_type(const Collective& collective, const Type& type) {
    const size_t operations = !collective.reduces ? 1 : type.is_float ? kOperations.size() : kOperations.size() - 1;
    for (size_t op = 0; op < operations; ++op) {
      for (const size_t count : {1, 1000, 70001}) {
        const uint64_t seed = ++cases_;
        const Call call{collective.kind, count, type, static_cast<ncclRedOp_t>(op),
                        static_cast<int>(seed % static_cast<uint64_t>(options_.ranks()))};
        for (const Rank& one : ranks_) fill(one, call, seed);
        issue(call);
        wait();
        size_t wrong = 0;
        for (const Rank& one : ranks_) wrong += wrong_of(one, call, seed);
        shared_.wrong += wrong;
        if (leads()) ++shared_.cases;
        if (wrong > 0) {
          std::printf("WRONG: %s %s %s, %zu elements, root %d: %zu wrong\n", collective.name, type.name,
                      kOperations[op], count, call.root, wrong);
        }
      }
    }
  }

  void fill(const Rank& one, const Call& call, uint64_t seed) const {
    const size_t elements = call.count * static_cast<size_t>(options_.ranks());
    std::vector<char> host(elements * call.type.bytes);
    for (size_t i = 0; i < elements; ++i) {
      call.type.write(host.data() + i * call.type.bytes, value(seed, one.rank, i, call.op));
    }
    // On the rank's own stream: ranks that share the GPU may have begun, and wait for this rank.
    CUDA(cudaSetDevice(one.device));
    CUDA(cudaMemcpyAsync(one.input, host.data(), host.size(), cudaMemcpyHostToDevice, one.stream));
    CUDA(cudaMemsetAsync(one.output, kPoison, host.size() + 64, one.stream));
    CUDA(cudaStreamSynchronize(one.stream));
  }

  /// The right value of an element of a rank's output.
  double wanted(const Rank& one, const Call& call, uint64_t seed, size_t i) const {
    const int ranks = options_.ranks();
    const size_t own = static_cast<size_t>(one.rank) * call.count;
    const auto of = [&](int rank, size_t index) { return static_cast<double>(value(seed, rank, index, call.op)); };
    switch (call.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
        return reduced(seed, ranks, i, call.op);
      case Kind::kReduceScatter:
        return reduced(seed, ranks, own + i, call.op);
      case Kind::kAllGather:
      case Kind::kGather:
        return of(static_cast<int>(i / call.count), i % call.count);
      case Kind::kBroadcast:
        return of(call.root, i);
      case Kind::kAllToAll:
        return of(static_cast<int>(i / call.count), own + i % call.count);
      case Kind::kScatter:
        return of(call.root, own + i);
      case Kind::kSendRecv:
        return of((one.rank + ranks - 1) % ranks, i);
    }
    return 0;
  }

  size_t wrong_of(const Rank& one, const Call& call, uint64_t seed) const {
    const bool many = call.kind == Kind::kAllGather || call.kind == Kind::kGather || call.kind == Kind::kAllToAll;
    const bool to_root = call.kind == Kind::kReduce || call.kind == Kind::kGather;
    const size_t written = to_root && one.rank != call.root ? 0 : many ? static_cast<size_t>(options_.ranks()) : 1;
    const size_t bytes = written * call.count * call.type.bytes;
    std::vector<char> host(bytes + 64);  // with the bytes after the output
    CUDA(cudaSetDevice(one.device));
    CUDA(cudaMemcpy(host.data(), one.output, host.size(), cudaMemcpyDeviceToHost));
    size_t wrong = 0;
    for (size_t i = 0; i < written * call.count; ++i) {
      const double got = call.type.read(host.data() + i * call.type.bytes);
      const double right = wanted(one, call, seed, i);
      const double slack = call.op == ncclAvg ? 0.01 * std::abs(right) : 0;
      if (!(std::abs(got - right) <= slack)) ++wrong;
    }
    return wrong + static_cast<size_t>(std::count_if(host.begin() + static_cast<ptrdiff_t>(bytes), host.end(),
                                                     [](char c) { return static_cast<unsigned char>(c) != kPoison; }));
  }

  void time(const Collective& collective, size_t bytes) {
    using Clock = std::chrono::steady_clock;
    const Call call{collective.kind, std::max<size_t>(1, bytes / kTypes[0].bytes), kTypes[0], ncclSum, 0};
    for (int i = 0; i < 10; ++i) issue(call);
    wait();
    meet();
    const auto start = Clock::now();
    for (int i = 0; i < options_.calls; ++i) issue(call);
    const auto enqueued = Clock::now();
    wait();
    const auto done = Clock::now();
    meet();
    if (!leads()) return;
    const auto us = [&](auto time) { return std::chrono::duration<double, std::micro>(time).count() / options_.calls; };
    std::printf("%-14s %12zu %12.2f %12.2f %10.2f\n", collective.name, bytes, us(enqueued - start), us(done - start),
                static_cast<double>(bytes) / us(done - start) / 1000);
  }

  const Options& options_;
  const Library& nccl_;
  Shared& shared_;
  std::vector<Rank> ranks_;
  size_t bytes_ = 0;
  uint64_t cases_ = 0;
};

/// One process's threads. The first process makes the id before any other joins.
void run_process(const Options& options, Shared& shared, int process) {
  alarm(kLimitSeconds);  // ends the process if anything stands still
  const Library nccl(options.library);
  if (process == 0) {
    int version = 0;
    NCCL(nccl, version(&version));
    NCCL(nccl, unique_id(&shared.id));
    std::printf("%s: version %d, %d processes × %d threads × %d GPUs\n", options.library.c_str(), version,
                options.processes, options.threads, options.gpus);
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < options.threads; ++thread) {
    threads.emplace_back([&, thread] {
      pthread_barrier_wait(&shared.barrier);  // the id is there
      Worker(options, nccl, shared, (process * options.threads + thread) * options.gpus).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--share") {
      options.share = true;
      continue;
    }
    if (i + 1 == argc) fail(std::string(name) + " needs a value; see the head of the source");
    const char* const text = argv[++i];
    const auto number = static_cast<int>(std::strtol(text, nullptr, 0));
    if (name == "--library") {
      options.library = text;
    } else if (name == "-b" || name == "-e") {
      (name == "-b" ? options.least : options.most) = std::strtoull(text, nullptr, 0);
    } else if (name == "-p" || name == "-t" || name == "-g" || name == "-n") {
      (name == "-p"   ? options.processes
       : name == "-t" ? options.threads
       : name == "-g" ? options.gpus
                      : options.calls) = std::max(1, number);
    } else {
      fail("unknown option " + std::string(name) + "; see the head of the source");
    }
  }
  options.least = std::max<size_t>(options.least, 4);
  return options;
}

/// In a process of its own, since CUDA does not survive a fork.
int count_devices() {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int devices = count_devices();
  if (devices == 0 || (options.ranks() > devices && !options.share)) {
    std::printf("skipped: %d ranks, %d GPUs\n", options.ranks(), devices);
    return kSkipped;
  }
  if (options.share) {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    // Ranks on one GPU must not wait for each other's kernels to be loaded, or share a queue of the hardware.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  }
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  auto& shared = *new (memory) Shared{};
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared.barrier, &attributes, static_cast<unsigned>(options.processes * options.threads));
  std::vector<pid_t> children;
  for (int process = 0; process < options.processes; ++process) {
    children.push_back(fork());
    if (children.back() == 0) {
      run_process(options, shared, process);
      std::exit(0);
    }
  }
  bool well = true;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (well) std::for_each(children.begin(), children.end(), [](pid_t child) { kill(child, SIGKILL); });
    well = false;
  }
  const bool right = well && shared.wrong == 0 && shared.cases > 0;
  std::printf("%s: %zu cases, %zu wrong%s\n", right ? "passed" : "WRONG", shared.cases.load(), shared.wrong.load(),
              well ? "" : "; a process failed or stood still");
  return right ? 0 : 1;
}
