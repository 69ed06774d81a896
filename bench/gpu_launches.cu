// SPDX-License-Identifier: Apache-2.0
// The time that CUDA needs for a kernel that does nothing: the floor of a call.
//
//   graphs  by the bytes of the kernel's parameters, and for graphs that own a user object
//   eager   by the bytes of the parameters, and with the other CUDA functions that a call uses: the processor's time
//
// Without a GPU, the program says so and exits with 77.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kCalls = 20;      // kernels of a graph
constexpr int kLaunches = 100;  // of the graph, between two events
constexpr int kRounds = 15;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

template <int kBytes>
struct Parameters {
  unsigned values[kBytes / sizeof(unsigned)];
};

/// Stores the last parameter if it is not 0.
template <int kBytes>
__global__ void use(const __grid_constant__ Parameters<kBytes> parameters, unsigned* out) {
  const unsigned value = parameters.values[kBytes / sizeof(unsigned) - 1];
  if (value != 0) *out = value;
}

template <int kBytes>
void launch(cudaStream_t stream) {
  use<kBytes><<<1, 64, 0, stream>>>(Parameters<kBytes>{}, nullptr);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Graph {
  cudaGraphExec_t exec = nullptr;
  std::vector<double> times;  // µs per kernel
};

template <int kBytes>
Graph capture(cudaStream_t stream, bool owns_object) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; ++i) launch<kBytes>(stream);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph));
  if (owns_object) {
    cudaUserObject_t object = nullptr;
    CHECK(cudaUserObjectCreate(
        &object, new int(0), [](void* at) { delete static_cast<int*>(at); }, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  }
  Graph made;
  CHECK(cudaGraphInstantiate(&made.exec, graph, 0));
  CHECK(cudaGraphUpload(made.exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphDestroy(graph));
  return made;
}

/// µs of the processor per call of `enqueue`. The queue of the stream is never full.
template <class Enqueue>
double processor_time(cudaStream_t stream, const Enqueue& enqueue) {
  constexpr int kQueued = 200;
  std::vector<double> times;
  for (int round = -1; round < kRounds; ++round) {
    CHECK(cudaStreamSynchronize(stream));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kQueued; ++i) enqueue();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (round >= 0) times.push_back(time.count() / kQueued);
  }
  return median(times);
}

void report_eager(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto record = [&] { CHECK(cudaEventRecord(event, stream)); };
  const auto query = [&] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamGetCaptureInfo(stream, &status));
  };
  const auto select = [&] {
    int device = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaSetDevice(device));
  };
  std::puts("eager, µs of the processor");
  std::printf("launch with   256 bytes | %.3f\n", processor_time(stream, [&] { launch<256>(stream); }));
  std::printf("launch with  1024 bytes | %.3f\n", processor_time(stream, [&] { launch<1024>(stream); }));
  std::printf("launch with  2048 bytes | %.3f\n", processor_time(stream, [&] { launch<2048>(stream); }));
  std::printf("launch with  3832 bytes | %.3f\n", processor_time(stream, [&] { launch<3832>(stream); }));
  std::printf("and an event            | %.3f\n", processor_time(stream, [&] {
                launch<3832>(stream);
                record();
              }));
  std::printf("and a query for capture | %.3f\n", processor_time(stream, [&] {
                query();
                launch<3832>(stream);
                record();
              }));
  std::printf("and the current GPU     | %.3f\n", processor_time(stream, [&] {
                select();
                query();
                launch<3832>(stream);
                record();
              }));
  std::printf("an event alone          | %.3f\n", processor_time(stream, record));
  CHECK(cudaEventDestroy(event));
}

}  // namespace

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) {
    std::puts("skipped: there is no GPU");
    return 77;
  }
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));

  struct Case {
    int bytes;
    bool owns_object;
    Graph graph;
  };
  std::vector<Case> cases;
  for (const bool owns : {false, true}) {
    cases.push_back({256, owns, capture<256>(stream, owns)});
    cases.push_back({1024, owns, capture<1024>(stream, owns)});
    cases.push_back({2048, owns, capture<2048>(stream, owns)});
    cases.push_back({3072, owns, capture<3072>(stream, owns)});
    cases.push_back({3520, owns, capture<3520>(stream, owns)});
    cases.push_back({3776, owns, capture<3776>(stream, owns)});
    cases.push_back({3784, owns, capture<3784>(stream, owns)});
    cases.push_back({3832, owns, capture<3832>(stream, owns)});
    cases.push_back({3840, owns, capture<3840>(stream, owns)});
    cases.push_back({4080, owns, capture<4080>(stream, owns)});
  }
  for (int round = -1; round < kRounds; ++round) {
    for (Case& one : cases) {
      CHECK(cudaGraphLaunch(one.graph.exec, stream));
      CHECK(cudaEventRecord(begin, stream));
      for (int i = 0; i < kLaunches; ++i) CHECK(cudaGraphLaunch(one.graph.exec, stream));
      CHECK(cudaEventRecord(end, stream));
      CHECK(cudaStreamSynchronize(stream));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (round >= 0) one.graph.times.push_back(1e3 * ms / (kLaunches * kCalls));
    }
  }
  std::printf("µs per kernel, graphs of %d kernels\nparameters, bytes | median | with a user object\n", kCalls);
  const size_t half = cases.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    std::printf("%5d | %.3f | %.3f\n", cases[i].bytes, median(cases[i].graph.times),
                median(cases[i + half].graph.times));
  }
  report_eager(stream);
  return 0;
}
