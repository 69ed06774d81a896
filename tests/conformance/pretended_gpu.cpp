// SPDX-License-Identifier: Apache-2.0
// The kit's access to GPUs, for machines without one: two GPUs whose memory is private memory of this process. An
// access at its address ends the process, as for memory of a GPU. Its dmabuf is a memfd, which plugins can map.
#include <cstring>
#include <utility>

#include "tools/plugin_test/gpu.h"
#include "unit/private_memory.h"

namespace tutti::tools::plugin_test {

struct Gpu::Parts {
  explicit Parts(size_t bytes) : memory(bytes), dmabuf(memory.exported()) {}
  test::PrivateMemory memory;
  base::Fd dmabuf;
};

Gpu::Gpu(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gpu::Gpu(Gpu&& other) noexcept = default;
Gpu& Gpu::operator=(Gpu&& other) noexcept = default;
Gpu::~Gpu() = default;

int gpu_count() {
  return 2;
}

Result<Gpu> Gpu::open(int /*rank*/, size_t bytes) {
  return Gpu(std::make_unique<Parts>(bytes));
}
std::byte* Gpu::memory() const {
  return reinterpret_cast<std::byte*>(parts_->memory.view());
}
size_t Gpu::size() const {
  return parts_->memory.bytes();
}
Stream Gpu::stream() const {
  return nullptr;
}
Status Gpu::upload(std::span<const std::byte> from, size_t offset) {
  std::memcpy(parts_->memory.alias() + offset, from.data(), from.size());
  return {};
}
Status Gpu::download(std::span<std::byte> to, size_t offset) {
  std::memcpy(to.data(), parts_->memory.alias() + offset, to.size());
  return {};
}
Result<Gpu::Dmabuf> Gpu::dmabuf() {
  return Dmabuf{parts_->dmabuf.get(), 0};
}
Status Gpu::wait() {
  return {};
}

}  // namespace tutti::tools::plugin_test
