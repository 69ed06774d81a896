// SPDX-License-Identifier: Apache-2.0
// Memory and streams of GPUs for the rules of the kit. In a build without CUDA there is no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tutti/communicator.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// The number of GPUs that this process can use.
int gpu_count();

/// A GPU, its stream, and memory on it. Functions return when their work on the GPU is complete. One thread at a time.
class Gpu {
 public:
  /// Makes GPU `rank` modulo gpu_count() the calling thread's own, and allocates `bytes` on it.
  static Result<Gpu> open(int rank, size_t bytes);
  Gpu(Gpu&& other) noexcept;
  Gpu& operator=(Gpu&& other) noexcept;
  ~Gpu();

  std::byte* memory() const;
  size_t size() const;
  Stream stream() const;
  /// Copies to and from the memory, from byte `offset` on.
  Status upload(std::span<const std::byte> from, size_t offset);
  Status download(std::span<std::byte> to, size_t offset);
  /// The memory as a dmabuf, open as long as this object lives. kUnsupported: the GPU exports no dmabufs.
  struct Dmabuf {
    int descriptor;
    uint64_t offset;  ///< offset of the memory in the dmabuf
  };
  Result<Dmabuf> dmabuf();
  /// Waits for the stream.
  Status wait();

 private:
  struct Parts;
  explicit Gpu(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::tools::plugin_test
