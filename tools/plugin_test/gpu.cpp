// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/gpu.h"

#include <utility>

#if defined(TUTTI_HAS_CUDA)
#include "device/cuda/dmabuf.h"
#include "device/cuda/runtime.h"
#endif

namespace tutti::tools::plugin_test {

Gpu::Gpu(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gpu::Gpu(Gpu&& other) noexcept = default;
Gpu& Gpu::operator=(Gpu&& other) noexcept = default;
Gpu::~Gpu() = default;

#if defined(TUTTI_HAS_CUDA)

struct Gpu::Parts {
  cuda::DeviceMemory memory;
  cuda::Stream stream;
  base::Fd dmabuf;
};

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<Gpu> Gpu::open(int rank, size_t bytes) {
  TUTTI_CUDA_TRY(cudaSetDevice(rank % gpu_count()));
  TUTTI_ASSIGN(const int device, cuda::current_device());
  auto parts = std::make_unique<Parts>();
  TUTTI_ASSIGN(parts->memory, cuda::DeviceMemory::create(device, bytes));
  cudaStream_t stream = nullptr;
  TUTTI_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  parts->stream.reset(stream);
  TUTTI_TRY(cuda::use_once(stream));  // ranks may share a GPU
  return Gpu(std::move(parts));
}

std::byte* Gpu::memory() const {
  return reinterpret_cast<std::byte*>(parts_->memory.data());
}

size_t Gpu::size() const {
  return parts_->memory.size();
}

Stream Gpu::stream() const {
  return parts_->stream.get();
}

Status Gpu::upload(std::span<const std::byte> from, size_t offset) {
  TUTTI_CUDA_TRY(
      cudaMemcpyAsync(memory() + offset, from.data(), from.size(), cudaMemcpyHostToDevice, parts_->stream.get()));
  return wait();
}

Status Gpu::download(std::span<std::byte> to, size_t offset) {
  TUTTI_CUDA_TRY(
      cudaMemcpyAsync(to.data(), memory() + offset, to.size(), cudaMemcpyDeviceToHost, parts_->stream.get()));
  return wait();
}

Result<Gpu::Dmabuf> Gpu::dmabuf() {
  TUTTI_ASSIGN(const int device, cuda::current_device());
  if (!cuda::exports_dmabufs(device)) return Status(Code::kUnsupported, "the GPU exports no dmabufs");
  TUTTI_ASSIGN(cuda::Dmabuf made, cuda::export_dmabuf(memory(), size(), device));
  parts_->dmabuf = std::move(made.fd);
  return Dmabuf{parts_->dmabuf.get(), made.offset};
}

Status Gpu::wait() {
  return cuda::check(cudaStreamSynchronize(parts_->stream.get()), "cudaStreamSynchronize");
}

#else

struct Gpu::Parts {};

int gpu_count() {
  return 0;
}

namespace {
Status no_cuda() {
  return {Code::kUnsupported, "this build has no CUDA"};
}
}  // namespace

Result<Gpu> Gpu::open(int, size_t) {
  return no_cuda();
}
std::byte* Gpu::memory() const {
  return nullptr;
}
size_t Gpu::size() const {
  return 0;
}
Stream Gpu::stream() const {
  return nullptr;
}
Status Gpu::upload(std::span<const std::byte>, size_t) {
  return no_cuda();
}
Status Gpu::download(std::span<std::byte>, size_t) {
  return no_cuda();
}
Result<Gpu::Dmabuf> Gpu::dmabuf() {
  return no_cuda();
}
Status Gpu::wait() {
  return no_cuda();
}

#endif

}  // namespace tutti::tools::plugin_test
