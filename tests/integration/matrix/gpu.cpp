// SPDX-License-Identifier: Apache-2.0
#include "integration/matrix/gpu.h"

#if defined(TUTTI_HAS_CUDA)
#include "device/cuda/runtime.h"

namespace tutti::matrix {
namespace {

/// The calling rank's stream.
Result<cudaStream_t> own_stream() {
  thread_local cudaStream_t stream = nullptr;
  if (stream != nullptr) return stream;
  TUTTI_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TUTTI_TRY(cuda::use_once(stream));
  return stream;
}

/// Host memory on the GPU. Made once, since freeing waits for all kernels of a GPU, and with them for other ranks.
class Mirror {
 public:
  static constexpr size_t kBytes = 128u << 20;

  Result<std::byte*> data() {
    if (memory_.data() == nullptr) {
      TUTTI_ASSIGN(const int device, cuda::current_device());
      TUTTI_ASSIGN(memory_, cuda::DeviceMemory::create(device, kBytes));
    }
    return reinterpret_cast<std::byte*>(memory_.data());
  }
  Result<std::byte*> of(std::span<const std::byte> memory, cudaStream_t stream) {
    if (memory.size() > kBytes) return Status(Code::kUnsupported, "the case is too large");
    TUTTI_ASSIGN(std::byte* const data, Mirror::data());
    TUTTI_CUDA_TRY(cudaMemcpyAsync(data, memory.data(), memory.size(), cudaMemcpyHostToDevice, stream));
    return data;
  }

 private:
  cuda::DeviceMemory memory_;
};

/// Mirrors of the calling rank's inputs (and of its outputs in place), and of its outputs.
thread_local Mirror ins;
thread_local Mirror outs;

/// Captures the call and replays it.
Status replay(cudaStream_t stream, const std::function<Status()>& call) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  TUTTI_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const Status captured = call();
  const Status ended = cuda::check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  TUTTI_TRY(captured);
  TUTTI_TRY(ended);
  TUTTI_CUDA_TRY(cudaGraphInstantiate(&exec, graph, 0));
  TUTTI_CUDA_TRY(cudaGraphLaunch(exec, stream));
  TUTTI_CUDA_TRY(cudaStreamSynchronize(stream));
  TUTTI_CUDA_TRY(cudaGraphExecDestroy(exec));
  return cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

}  // namespace

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void use_gpu(int rank) {
  cudaSetDevice(rank % gpu_count());
}

Result<std::vector<Registration>> register_buffers(Communicator& communicator) {
  std::vector<Registration> registrations;
  for (Mirror* const mirror : {&ins, &outs}) {
    TUTTI_ASSIGN(std::byte* const data, mirror->data());
    TUTTI_ASSIGN(auto registration, communicator.register_buffer(data, Mirror::kBytes));
    registrations.push_back(std::move(registration));
  }
  return registrations;
}

Status run_on_gpu(const GpuBuffers& buffers, bool graph,
                  const std::function<Status(void* input, void* output, Stream stream)>& call) {
  TUTTI_ASSIGN(cudaStream_t stream, own_stream());
  TUTTI_ASSIGN(std::byte* const in, ins.of(buffers.in, stream));
  std::byte* out = in;
  const bool one = buffers.in.data() == buffers.out.data();
  if (!one) {
    TUTTI_ASSIGN(out, outs.of(buffers.out, stream));
  }
  const auto run = [&] { return call(in + buffers.input, out + buffers.output, stream); };
  TUTTI_TRY(graph ? replay(stream, run) : run());
  // A copy to pageable memory that waits for a kernel would keep other threads from starting theirs.
  TUTTI_CUDA_TRY(cudaStreamSynchronize(stream));
  TUTTI_CUDA_TRY(cudaMemcpyAsync(buffers.out.data(), out, buffers.out.size(), cudaMemcpyDeviceToHost, stream));
  if (!one) {
    TUTTI_CUDA_TRY(cudaMemcpyAsync(buffers.in.data(), in, buffers.in.size(), cudaMemcpyDeviceToHost, stream));
  }
  return cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace tutti::matrix

#else

namespace tutti::matrix {

int gpu_count() {
  return 0;
}
void use_gpu(int) {}

Result<std::vector<Registration>> register_buffers(Communicator&) {
  return Status(Code::kUnsupported, "this build has no CUDA");
}

Status run_on_gpu(const GpuBuffers&, bool, const std::function<Status(void*, void*, Stream)>&) {
  return {Code::kUnsupported, "this build has no CUDA"};
}

}  // namespace tutti::matrix

#endif
