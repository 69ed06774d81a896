// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime as the core uses it: every call checked, memory that frees itself, memory that peers map.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/status.h"

namespace tutti::cuda {

/// ok, or kDevice with the call, its error's name and meaning.
Status check(cudaError_t error, std::string_view call);
#define TUTTI_CUDA_TRY(call) TUTTI_TRY(::tutti::cuda::check((call), #call))

/// The GPU that the calling thread uses now.
Result<int> current_device();

/// Makes a GPU the calling thread's own for as long as it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = -1;  // -1: nothing to restore
};

/// Lets the calling thread allocate while a stream of it is captured into a graph.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct Destroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

/// A stream of the current GPU that neither blocks the default stream nor waits for it. Its priority differs from the
/// default: streams of one priority share hardware queues, so its work could be queued behind a kernel that waits for
/// this work.
Result<Stream> make_side_stream();

/// Uses a new stream once, and returns when it was used. CUDA gives a stream its hardware queue at its first use, after
/// all kernels that run on the GPU at that time in this process. If one of these kernels waits for a kernel on the new
/// stream, both wait forever.
Status use_once(cudaStream_t stream);
/// Without times.
Result<Event> make_event();

/// Fills memory that GPU `device` writes with zeros. Does not wait for streams of the application. Fails in a capture
/// of the calling thread, unless a CaptureScope is alive.
Status clear(void* memory, size_t bytes, int device);

/// Memory of one GPU, zero at first. Allocation and fill do not wait for streams of the application, and are allowed
/// while a stream is captured. Freed memory is kept for the next DeviceMemory of its size, until the GPU has none left:
/// CUDA would wait for all kernels to free it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  static Result<DeviceMemory> create(int device, size_t bytes);
  /// Copies from the host to the memory from byte `at` on.
  Status fill(const void* from, size_t bytes, size_t at = 0) const;
  uint8_t* data() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    int device;
    size_t bytes;
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  size_t size_ = 0;
};

/// Memory of the host that all GPUs of the process map at `on_device()`; zero at first. Freed memory is kept, as for
/// DeviceMemory.
class MappedMemory {
 public:
  MappedMemory() = default;
  static Result<MappedMemory> create(size_t bytes);
  void* on_host() const { return memory_.get(); }
  void* on_device() const { return device_; }

 private:
  struct Free {
    size_t bytes;
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  void* device_ = nullptr;
};

/// Memory of the host with a different owner, which all GPUs of the process map while this object lives. If pages are
/// registered already, their registration stays with its owner, which must outlive this object.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  static Result<RegisteredMemory> create(void* memory, size_t bytes);
  uint8_t* on_device() const { return device_; }

 private:
  struct Unregister {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Unregister> memory_;
  uint8_t* device_ = nullptr;
};

/// PCI address of a GPU: ordinals differ between processes.
using PciAddress = std::array<char, 16>;
Result<PciAddress> pci_address(int device);

/// The GPU at an address. kDevice: this process does not see it.
Result<int> device_at(const PciAddress& address);

/// Identifies a GPU in all processes and on all hosts; with MIG, the compute instance that this process uses.
using GpuUuid = std::array<char, 16>;
Result<GpuUuid> uuid(int device);

/// The number of SMs of a GPU. With MIG, only the part of this process counts.
Result<uint32_t> multiprocessors(int device);

/// Why `device` cannot reach the memory of the GPU at `owner`; empty: it can.
Result<std::string> why_unreachable(int device, const PciAddress& owner);

/// The data that a rank of this machine needs to map a GPU's memory. Plain data.
struct MemoryAddress {
  uint64_t process = 0;
  uint64_t pointer = 0;  ///< in that process
  uint64_t bytes = 0;
  PciAddress pci = {};
  cudaIpcMemHandle_t handle{};
};
static_assert(std::is_trivially_copyable_v<MemoryAddress>);

/// `bytes`: of a whole allocation.
Result<MemoryAddress> export_memory(void* begin, uint64_t bytes, int device);

/// Memory of a different rank, readable and writable by `device`. Within a process, this is the memory itself.
class PeerMemory {
 public:
  PeerMemory() = default;
  /// Fails (kUnsupported) where the two GPUs cannot reach each other's memory.
  static Result<PeerMemory> import(const MemoryAddress& address, int device);
  uint8_t* data() const { return pointer_; }

 private:
  struct Close {
    int device;
    void operator()(void* mapping) const;
  };
  uint8_t* pointer_ = nullptr;
  std::unique_ptr<void, Close> mapping_;  // mapping of a different process's memory
};

}  // namespace tutti::cuda
