// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

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

namespace {

/// Runs `enqueue` on a stream that no stream of the application waits for or is waited for by, to its end. Its priority
/// is not the usual one: streams of one priority share queues of the hardware, so that this one could come behind a
/// kernel that waits for what it does.
template <class Enqueue>
Status run_aside(Enqueue&& enqueue) {
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  cudaStream_t made = nullptr;
  int least = 0;
  int greatest = 0;
  TUTTI_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TUTTI_CUDA_TRY(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
  const std::unique_ptr<CUstream_st, Destroy> stream(made);
  TUTTI_TRY(enqueue(stream.get()));
  TUTTI_CUDA_TRY(cudaStreamSynchronize(stream.get()));
  return {};
}

}  // namespace

Result<DeviceMemory> DeviceMemory::create(int device, size_t bytes) {
  const DeviceScope scope(device);
  const CaptureScope capture;
  void* pointer = nullptr;
  TUTTI_CUDA_TRY(cudaMalloc(&pointer, bytes));
  DeviceMemory memory;
  memory.memory_ = std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(pointer), Free{device});
  memory.size_ = bytes;
  TUTTI_TRY(run_aside(
      [&](cudaStream_t stream) { return check(cudaMemsetAsync(pointer, 0, bytes, stream), "cudaMemsetAsync"); }));
  return memory;
}

Status DeviceMemory::fill(const void* from, size_t bytes) const {
  const DeviceScope scope(memory_.get_deleter().device);
  const CaptureScope capture;
  return run_aside([&](cudaStream_t stream) {
    return check(cudaMemcpyAsync(memory_.get(), from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  });
}

void DeviceMemory::Free::operator()(uint8_t* memory) const {
  const DeviceScope scope(device);
  cudaFree(memory);
}

Result<MappedMemory> MappedMemory::create(size_t bytes) {
  const CaptureScope capture;
  void* pointer = nullptr;
  TUTTI_CUDA_TRY(cudaHostAlloc(&pointer, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  MappedMemory memory;
  memory.memory_ = std::unique_ptr<void, Free>(pointer);
  TUTTI_CUDA_TRY(cudaHostGetDevicePointer(&memory.device_, pointer, 0));
  __builtin_memset(pointer, 0, bytes);
  return memory;
}

void MappedMemory::Free::operator()(void* memory) const {
  cudaFreeHost(memory);
}

Result<RegisteredMemory> RegisteredMemory::create(void* memory, size_t bytes) {
  const CaptureScope capture;
  RegisteredMemory registered;
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error != cudaErrorHostMemoryAlreadyRegistered) {
    TUTTI_TRY(check(error, "cudaHostRegister"));
    registered.memory_.reset(memory);
  } else {
    cudaGetLastError();  // no error: another rank of this process did it
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

Result<std::string> why_unreachable(int device, const PciAddress& owner) {
  int other = 0;
  if (cudaDeviceGetByPCIBusId(&other, owner.data()) != cudaSuccess) {
    cudaGetLastError();  // that one is no error
    return fmt::format("GPU {} is not visible to this process (CUDA_VISIBLE_DEVICES)", owner.data());
  }
  if (other == device) return std::string();
  int can = 0;
  TUTTI_CUDA_TRY(cudaDeviceCanAccessPeer(&can, device, other));
  if (can != 0) return std::string();
  return fmt::format("GPU {} has no access to GPU {} ({})", device, other, owner.data());
}

Result<MemoryAddress> export_memory(const DeviceMemory& memory, int device) {
  MemoryAddress address;
  address.process = static_cast<uint64_t>(getpid());
  address.pointer = reinterpret_cast<uint64_t>(memory.data());
  address.bytes = memory.size();
  TUTTI_ASSIGN(address.pci, pci_address(device));
  TUTTI_CUDA_TRY(cudaIpcGetMemHandle(&address.handle, memory.data()));
  return address;
}

Result<PeerMemory> PeerMemory::import(const MemoryAddress& address, int device) {
  const DeviceScope scope(device);
  const CaptureScope capture;
  PeerMemory memory;
  TUTTI_ASSIGN(const std::string why_not, why_unreachable(device, address.pci));
  if (!why_not.empty()) return Status(Code::kUnsupported, why_not);
  int owner = 0;
  TUTTI_CUDA_TRY(cudaDeviceGetByPCIBusId(&owner, address.pci.data()));
  if (owner != device) {
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(owner, 0);
    if (enabled != cudaErrorPeerAccessAlreadyEnabled) TUTTI_TRY(check(enabled, "cudaDeviceEnablePeerAccess"));
    if (enabled != cudaSuccess) cudaGetLastError();  // that one is no error
  }
  if (address.process == static_cast<uint64_t>(getpid())) {
    memory.pointer_ = reinterpret_cast<uint8_t*>(address.pointer);
    return memory;
  }
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
