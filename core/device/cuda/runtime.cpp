// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

namespace tutti::cuda {

Status check(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) [[likely]]
    return {};
  return {Code::kDevice, fmt::format("{}: {}: {}", call, cudaGetErrorName(error), cudaGetErrorString(error))};
}

Result<int> current_device() {
  int device = 0;
  TUTTI_CUDA_TRY(cudaGetDevice(&device));
  return device;
}

DeviceScope::DeviceScope(int device) {
  int now = device;
  if (cudaGetDevice(&now) != cudaSuccess || now == device) return;
  if (cudaSetDevice(device) == cudaSuccess) before_ = now;
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0) cudaSetDevice(before_);
}

CaptureScope::CaptureScope() {
  cudaThreadExchangeStreamCaptureMode(&mode_);
}
CaptureScope::~CaptureScope() {
  cudaThreadExchangeStreamCaptureMode(&mode_);
}

Result<Stream> make_side_stream() {
  cudaStream_t made = nullptr;
  int least = 0;
  int greatest = 0;
  TUTTI_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TUTTI_CUDA_TRY(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
  Stream stream(made);
  TUTTI_TRY(use_once(made));
  return stream;
}

Status use_once(cudaStream_t stream) {
  TUTTI_ASSIGN(const Event event, make_event());
  TUTTI_CUDA_TRY(cudaEventRecord(event.get(), stream));
  TUTTI_CUDA_TRY(cudaEventSynchronize(event.get()));
  return {};
}

Result<Event> make_event() {
  cudaEvent_t made = nullptr;
  TUTTI_CUDA_TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  return Event(made);
}

namespace {

/// The stream on which this process fills memory of one GPU.
///
/// CUDA waits for all kernels of the GPU to make a stream, and blocks all threads meanwhile. A kernel may wait for one
/// of these threads, so the first communicator of the GPU makes the only stream, before it has kernels.
class FillStream {
 public:
  static FillStream& of(int device) {
    static std::mutex mutex;
    static auto* const by_device = new std::map<int, FillStream>;  // never destroyed: threads may outlive main()
    const std::lock_guard lock(mutex);
    return (*by_device)[device];
  }

  /// Runs `enqueue` on the stream, to its end. The GPU must be current.
  template <class Enqueue>
  Status run(Enqueue&& enqueue) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) {
      TUTTI_ASSIGN(stream_, make_side_stream());
    }
    TUTTI_TRY(enqueue(stream_.get()));
    TUTTI_CUDA_TRY(cudaStreamSynchronize(stream_.get()));
    return {};
  }

 private:
  std::mutex mutex_;
  Stream stream_;
};

constexpr int kHost = -1;  // location: instead of a GPU's number

/// Unused memory, kept for the next request of the same size. To give it back (cudaFree, cudaFreeHost) waits for all
/// kernels of the GPU, and blocks CUDA for all threads meanwhile; a kernel of a different communicator may wait for one
/// of these threads. So the memory is given back when nothing uses memory of its GPU any more.
class IdleMemory {
 public:
  static IdleMemory& of_process() {
    static auto* const all = new IdleMemory;  // never destroyed: threads may outlive main()
    return *all;
  }

  /// Null: none is idle. Either way there is one more user until leave().
  void* take(int location, size_t bytes) {
    const std::lock_guard lock(mutex_);
    Pool& from = pools_[location];
    ++from.users;
    auto& fitting = from.idle[bytes];
    if (fitting.empty()) return nullptr;
    void* const memory = fitting.back();
    fitting.pop_back();
    return memory;
  }
  void leave(int location, size_t bytes, void* memory) {
    {
      const std::lock_guard lock(mutex_);
      Pool& to = pools_[location];
      if (memory != nullptr) to.idle[bytes].push_back(memory);
      if (--to.users > 0) return;
    }
    give_back_all(location);
  }
  void give_back_all(int location) {
    std::map<size_t, std::vector<void*>> unused;
    {
      const std::lock_guard lock(mutex_);
      unused.swap(pools_[location].idle);
    }
    for (const auto& [size, pieces] : unused) {
      for (void* const piece : pieces) give_back(location, piece);
    }
  }

 private:
  /// Of one location: a GPU, or the host.
  struct Pool {
    size_t users = 0;
    std::map<size_t, std::vector<void*>> idle;  // by bytes
  };

  static void give_back(int location, void* memory) {
    if (location == kHost) {
      cudaFreeHost(memory);
      return;
    }
    const DeviceScope scope(location);
    cudaFree(memory);
  }

  std::mutex mutex_;
  std::map<int, Pool> pools_;
};

/// Takes idle memory, or the memory that `make` makes.
template <class Make>
Result<void*> obtain(int location, size_t bytes, Make&& make) {
  IdleMemory& idle = IdleMemory::of_process();
  void* memory = idle.take(location, bytes);
  if (memory != nullptr) return memory;
  Status made = make(memory);
  if (!made.ok()) {
    cudaGetLastError();
    idle.give_back_all(location);  // idle memory of other sizes may be the memory that is missing
    made = make(memory);
  }
  if (made.ok()) return memory;
  idle.leave(location, bytes, nullptr);
  return made;
}

}  // namespace

Status clear(void* memory, size_t bytes, int device) {
  const DeviceScope scope(device);
  return FillStream::of(device).run(
      [&](cudaStream_t stream) { return check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync"); });
}

Result<DeviceMemory> DeviceMemory::create(int device, size_t bytes) {
  const DeviceScope scope(device);
  const CaptureScope capture;
  TUTTI_ASSIGN(void* const pointer,
               obtain(device, bytes, [&](void*& made) { return check(cudaMalloc(&made, bytes), "cudaMalloc"); }));
  DeviceMemory memory;
  memory.memory_ = std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(pointer), Free{device, bytes});
  memory.size_ = bytes;
  TUTTI_TRY(clear(pointer, bytes, device));
  return memory;
}

Status DeviceMemory::fill(const void* from, size_t bytes, size_t at) const {
  const int device = memory_.get_deleter().device;
  const DeviceScope scope(device);
  const CaptureScope capture;
  return FillStream::of(device).run([&](cudaStream_t stream) {
    return check(cudaMemcpyAsync(memory_.get() + at, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  });
}

void DeviceMemory::Free::operator()(uint8_t* memory) const {
  IdleMemory::of_process().leave(device, bytes, memory);
}

Result<MappedMemory> MappedMemory::create(size_t bytes) {
  const CaptureScope capture;
  TUTTI_ASSIGN(void* const pointer, obtain(kHost, bytes, [&](void*& made) {
                 return check(cudaHostAlloc(&made, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                              "cudaHostAlloc");
               }));
  MappedMemory memory;
  memory.memory_ = std::unique_ptr<void, Free>(pointer, Free{bytes});
  TUTTI_CUDA_TRY(cudaHostGetDevicePointer(&memory.device_, pointer, 0));
  __builtin_memset(pointer, 0, bytes);
  return memory;
}

void MappedMemory::Free::operator()(void* memory) const {
  IdleMemory::of_process().leave(kHost, bytes, memory);
}

Result<RegisteredMemory> RegisteredMemory::create(void* memory, size_t bytes) {
  const CaptureScope capture;
  RegisteredMemory registered;
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error != cudaErrorHostMemoryAlreadyRegistered) {
    TUTTI_TRY(check(error, "cudaHostRegister"));
    registered.memory_.reset(memory);
  } else {
    cudaGetLastError();  // clears the error: a different rank of this process has registered it
  }
  void* device = nullptr;
  TUTTI_CUDA_TRY(cudaHostGetDevicePointer(&device, memory, 0));
  registered.device_ = static_cast<uint8_t*>(device);
  return registered;
}

void RegisteredMemory::Unregister::operator()(void* memory) const {
  cudaHostUnregister(memory);
}

Result<PciAddress> pci_address(int device) {
  PciAddress address = {};
  TUTTI_CUDA_TRY(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device));
  return address;
}

Result<int> device_at(const PciAddress& address) {
  int device = 0;
  TUTTI_CUDA_TRY(cudaDeviceGetByPCIBusId(&device, address.data()));
  return device;
}

Result<GpuUuid> uuid(int device) {
  cudaDeviceProp properties{};
  TUTTI_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  return std::to_array(properties.uuid.bytes);
}

Result<uint32_t> multiprocessors(int device) {
  int count = 0;
  TUTTI_CUDA_TRY(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return static_cast<uint32_t>(count);
}

Result<std::string> why_unreachable(int device, const PciAddress& owner) {
  int other = 0;
  if (cudaDeviceGetByPCIBusId(&other, owner.data()) != cudaSuccess) {
    cudaGetLastError();  // clears the error: it is no failure
    return fmt::format("GPU {} is not visible to this process (CUDA_VISIBLE_DEVICES)", owner.data());
  }
  if (other == device) return std::string();
  int can = 0;
  TUTTI_CUDA_TRY(cudaDeviceCanAccessPeer(&can, device, other));
  if (can != 0) return std::string();
  return fmt::format("GPU {} has no access to GPU {} ({})", device, other, owner.data());
}

Result<MemoryAddress> export_memory(void* begin, uint64_t bytes, int device) {
  MemoryAddress address;
  address.process = static_cast<uint64_t>(getpid());
  address.pointer = reinterpret_cast<uint64_t>(begin);
  address.bytes = bytes;
  TUTTI_ASSIGN(address.pci, pci_address(device));
  TUTTI_CUDA_TRY(cudaIpcGetMemHandle(&address.handle, begin));
  return address;
}

namespace {

/// For memory of this process.
Status enable_peer_access(int device, const PciAddress& owner_address) {
  TUTTI_ASSIGN(const int owner, device_at(owner_address));
  if (owner == device) return {};
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(owner, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // clears the error: it is no failure
    return {};
  }
  return check(enabled, "cudaDeviceEnablePeerAccess");
}

}  // namespace

Result<PeerMemory> PeerMemory::import(const MemoryAddress& address, int device) {
  const DeviceScope scope(device);
  const CaptureScope capture;
  PeerMemory memory;
  TUTTI_ASSIGN(const std::string why_not, why_unreachable(device, address.pci));
  if (!why_not.empty()) return Status(Code::kUnsupported, why_not);
  if (address.process == static_cast<uint64_t>(getpid())) {
    TUTTI_TRY(enable_peer_access(device, address.pci));
    memory.pointer_ = reinterpret_cast<uint8_t*>(address.pointer);
    return memory;
  }
  // The mapping brings its own access. To enable it between the GPUs would make a context of this process on the
  // peer's, of some 500 MiB.
  void* mapping = nullptr;
  TUTTI_CUDA_TRY(cudaIpcOpenMemHandle(&mapping, address.handle, cudaIpcMemLazyEnablePeerAccess));
  memory.pointer_ = static_cast<uint8_t*>(mapping);
  memory.mapping_ = std::unique_ptr<void, Close>(mapping, Close{device});
  return memory;
}

void PeerMemory::Close::operator()(void* mapping) const {
  const DeviceScope scope(device);
  cudaIpcCloseMemHandle(mapping);
}

}  // namespace tutti::cuda
