// SPDX-License-Identifier: Apache-2.0
// A network of the tests that moves memory of GPUs, between ranks that are threads of one process. CUDA copies the
// data. At the end each context writes to the standard error how many messages it moved from which kind of memory, and
// by which device from memory of which GPU. It has one device, or as many as the environment variable
// DEVICE_NETWORK_DEVICES says (2).
//
// DEVICE_NETWORK_FLUSHES builds a second plugin: its receives leave the data in a buffer of the plugin until they are
// flushed, it registers dmabufs, and it takes grouped receives. With DEVICE_NETWORK_FORGETS, its flush does nothing: a
// fault, which `tutti plugin test` must find.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/sdk/network.h"

namespace {

using tutti::Code;
using tutti::Result;
using tutti::Status;
namespace sdk = tutti::sdk;

#if defined(DEVICE_NETWORK_FLUSHES)
constexpr bool kFlushes = true;
constexpr uint64_t kCapabilities =
    TUTTI_NET_CAP_DEVICE_MEMORY | TUTTI_NET_CAP_DMABUF | TUTTI_NET_CAP_FLUSH | TUTTI_NET_CAP_GROUPED_RECV;
constexpr uint32_t kMemory = TUTTI_MEMORY_HOST | TUTTI_MEMORY_DMABUF;
#if defined(DEVICE_NETWORK_FORGETS)
constexpr bool kForgets = true;
#define DEVICE_NETWORK_NAME "device_unflushed"
#else
constexpr bool kForgets = false;
#define DEVICE_NETWORK_NAME "device_flushed"
#endif
#else
constexpr bool kFlushes = false;
constexpr bool kForgets = false;
constexpr uint64_t kCapabilities = TUTTI_NET_CAP_DEVICE_MEMORY;
constexpr uint32_t kMemory = TUTTI_MEMORY_HOST | TUTTI_MEMORY_CUDA;
#define DEVICE_NETWORK_NAME "device"
#endif
constexpr uint32_t kMaxGroup = 2;
constexpr std::array<std::string_view, 2> kNames = {"device0", "device1"};
constexpr uint64_t kMaxMessage = 1 << 20;

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return {Code::kDevice, fmt::format("{}: {}", call, cudaGetErrorString(error))};
}

/// Counted per context.
struct Counts {
  static constexpr size_t kGpus = 16;
  std::array<std::array<std::atomic<uint64_t>, kGpus>, kNames.size()> messages_by_device = {};  // and by GPU
  std::atomic<uint64_t> device_messages = 0;
  std::atomic<uint64_t> host_messages = 0;
  std::atomic<uint64_t> longest_host_message = 0;
  std::atomic<uint64_t> flushes = 0;
};

/// Makes a GPU the current GPU of the calling thread, until destruction: the thread may belong to the application.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) return;
    changed_ = cudaSetDevice(device) == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// The copies of all connections of a context. A stream per connection could share a hardware queue with a stream whose
/// kernel waits for these copies, since a GPU has 32 such queues (CUDA_DEVICE_MAX_CONNECTIONS).
class CopyStream {
 public:
  CopyStream() {
    cudaGetDevice(&device_);
    error_ = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~CopyStream() {
    if (error_ == cudaSuccess) cudaStreamDestroy(stream_);
  }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  /// Calls `action` with the stream, while the stream's GPU is current.
  template <class Action>
  Status use(Action&& action) const {
    TUTTI_TRY(check(error_, "cudaStreamCreateWithFlags"));
    const CurrentDevice current(device_);
    return action(stream_);
  }

 private:
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

/// A registration of memory of a GPU.
struct DeviceMemory {
  explicit DeviceMemory(std::shared_ptr<CopyStream> stream) : copies(std::move(stream)) {}
  ~DeviceMemory() {
    if (held == nullptr) return;
    static_cast<void>(
        copies->use([&](cudaStream_t stream) { return check(cudaFreeAsync(held, stream), "cudaFreeAsync"); }));
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::shared_ptr<CopyStream> copies;
  size_t gpu = 0;  ///< its number
  uint8_t* begin = nullptr;
  uint8_t* held = nullptr;  ///< buffer of received data before its flush
};

/// A posted send. Its data is read when a receive takes it, and the sender is told then.
struct Sent {
  const void* address = nullptr;
  uint64_t bytes = 0;
  uint32_t tag = 0;
  bool on_device = false;
  std::atomic<bool> done = false;
};

/// The state that two ends of a connection share.
struct Pipe {
  std::mutex mutex;
  std::deque<std::shared_ptr<Sent>> sent;
  bool closed = false;
};

struct Buffer {
  uint8_t* address = nullptr;
  uint64_t bytes = 0;
  uint32_t tag = 0;
  DeviceMemory* memory = nullptr;
};

struct Posted : sdk::Request {
  std::shared_ptr<Sent> sent;   // the send, if it is a send
  std::vector<Buffer> buffers;  // buffers of a receive
  std::vector<std::shared_ptr<Sent>> taken;
  cudaEvent_t copied = nullptr;  // event after the copies of a receive or flush
};

class Connection : public sdk::Connection {
 public:
  Connection(std::shared_ptr<Pipe> pipe, std::shared_ptr<Counts> counts, std::shared_ptr<CopyStream> copies,
             uint32_t device)
      : pipe_(std::move(pipe)), counts_(std::move(counts)), copies_(std::move(copies)), device_(device) {}
  ~Connection() override {
    const std::lock_guard lock(pipe_->mutex);
    pipe_->closed = true;
  }

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override {
    if (memory == TUTTI_MEMORY_HOST) return static_cast<void*>(nullptr);
    return made(address, bytes);
  }
  Result<void*> register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) override {
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || static_cast<uint64_t>(size) < offset + bytes) {
      return Status(Code::kInvalidArgument,
                    fmt::format("the dmabuf has {} bytes; {} were to be registered at {}", size, bytes, offset));
    }
    return made(address, bytes);
  }
  Status deregister_memory(void* registration) override {
    std::erase_if(registered_, [&](const auto& memory) { return memory.get() == registration; });
    return {};
  }

  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override {
    const std::lock_guard lock(pipe_->mutex);
    if (pipe_->closed) return {Code::kRemote, "the peer has closed the connection"};
    Posted& posted = post();
    posted.sent = std::make_shared<Sent>();
    posted.sent->address = address;
    posted.sent->bytes = bytes;
    posted.sent->tag = tag;
    posted.sent->on_device = registration != nullptr;
    pipe_->sent.push_back(posted.sent);
    if (registration != nullptr) {
      ++counts_->device_messages;
      ++counts_->messages_by_device[device_][static_cast<DeviceMemory*>(registration)->gpu];
    } else {
      ++counts_->host_messages;
      counts_->longest_host_message = std::max(counts_->longest_host_message.load(), bytes);
    }
    request = &posted;
    return {};
  }

  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override {
    Posted& posted = post();
    for (uint32_t i = 0; i < count; ++i) {
      posted.buffers.push_back(
          {static_cast<uint8_t*>(addresses[i]), bytes[i], tags[i], static_cast<DeviceMemory*>(registrations[i])});
    }
    request = &posted;
    return {};
  }

  Status flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
               sdk::Request*& request) override {
    Posted& posted = post();
    for (uint32_t i = 0; i < count; ++i) {
      const auto& memory = *static_cast<DeviceMemory*>(registrations[i]);
      auto* const to = static_cast<uint8_t*>(addresses[i]);
      if (!kForgets) TUTTI_TRY(copy(to, memory.held + (to - memory.begin), bytes[i]));
      ++counts_->flushes;
    }
    TUTTI_TRY(mark(posted));
    request = &posted;
    return {};
  }

  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override {
    auto& posted = static_cast<Posted&>(request);
    if (posted.sent != nullptr) {
      done = posted.sent->done;
    } else {
      if (!posted.buffers.empty() && posted.copied == nullptr) TUTTI_TRY(take(posted));
      if (posted.copied == nullptr) return {};
      const cudaError_t state = cudaEventQuery(posted.copied);
      if (state == cudaErrorNotReady) return {};
      TUTTI_TRY(check(state, "cudaEventQuery"));
      done = true;
      for (size_t i = 0; i < posted.taken.size(); ++i) {
        if (bytes != nullptr) bytes[i] = posted.taken[i]->bytes;
        posted.taken[i]->done = true;
      }
      cudaEventDestroy(posted.copied);
    }
    if (done) std::erase_if(posted_, [&](const auto& one) { return one.get() == &posted; });
    return {};
  }

 private:
  Result<void*> made(void* address, uint64_t bytes) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess || attributes.type != cudaMemoryTypeDevice) {
      return Status(Code::kInvalidArgument, "the memory to be registered is no memory of a GPU");
    }
    auto memory = std::make_unique<DeviceMemory>(copies_);
    memory->gpu = static_cast<size_t>(attributes.device) % Counts::kGpus;
    memory->begin = static_cast<uint8_t*>(address);
    if (kFlushes) {
      TUTTI_TRY(copies_->use([&](cudaStream_t stream) {
        return check(cudaMallocAsync(reinterpret_cast<void**>(&memory->held), bytes, stream), "cudaMallocAsync");
      }));
    }
    registered_.push_back(std::move(memory));
    return static_cast<void*>(registered_.back().get());
  }
  Posted& post() {
    posted_.push_back(std::make_unique<Posted>());
    posted_.back()->connection = this;
    return *posted_.back();
  }
  Status copy(void* to, const void* from, uint64_t bytes) {
    if (bytes == 0) return {};
    return copies_->use([&](cudaStream_t stream) {
      return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    });
  }
  Status mark(Posted& posted) {
    return copies_->use([&](cudaStream_t stream) -> Status {
      TUTTI_TRY(check(cudaEventCreateWithFlags(&posted.copied, cudaEventDisableTiming), "cudaEventCreate"));
      return check(cudaEventRecord(posted.copied, stream), "cudaEventRecord");
    });
  }

  /// Takes the oldest messages with the tags of a receive, if all are there and no older receive waits for them.
  Status take(Posted& posted) {
    const std::lock_guard lock(pipe_->mutex);
    for (const auto& older : posted_) {
      if (older.get() == &posted) break;
      for (const Buffer& theirs : older->buffers) {
        for (const Buffer& own : posted.buffers) {
          if (older->copied == nullptr && theirs.tag == own.tag) return {};
        }
      }
    }
    std::vector<std::shared_ptr<Sent>> taken;
    for (const Buffer& buffer : posted.buffers) {
      const auto found = std::find_if(pipe_->sent.begin(), pipe_->sent.end(),
                                      [&](const auto& sent) { return sent->tag == buffer.tag; });
      if (found == pipe_->sent.end()) return pipe_->closed ? Status(Code::kRemote, "the peer has closed") : Status();
      if ((*found)->bytes > buffer.bytes) return {Code::kMismatch, "a message is longer than its buffer"};
      taken.push_back(*found);
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      const Buffer& buffer = posted.buffers[i];
      const bool holds = kFlushes && buffer.memory != nullptr;
      uint8_t* const to = holds ? buffer.memory->held + (buffer.address - buffer.memory->begin) : buffer.address;
      TUTTI_TRY(copy(to, taken[i]->address, taken[i]->bytes));
      std::erase(pipe_->sent, taken[i]);
    }
    posted.taken = std::move(taken);
    return mark(posted);
  }

  std::shared_ptr<Pipe> pipe_;
  std::shared_ptr<Counts> counts_;
  std::shared_ptr<CopyStream> copies_;
  uint32_t device_;
  std::vector<std::unique_ptr<DeviceMemory>> registered_;
  std::vector<std::unique_ptr<Posted>> posted_;
};

/// Connections that wait for their listener, of the whole process.
struct Backlog {
  std::mutex mutex;
  std::deque<std::shared_ptr<Pipe>> waiting;
};
std::mutex backlogs_mutex;
std::map<uint64_t, std::weak_ptr<Backlog>> backlogs;
uint64_t next_backlog = 1;

class Listener : public sdk::Listener {
 public:
  Listener(std::shared_ptr<Backlog> backlog, std::shared_ptr<Counts> counts, std::shared_ptr<CopyStream> copies,
           uint32_t device)
      : backlog_(std::move(backlog)), counts_(std::move(counts)), copies_(std::move(copies)), device_(device) {}
  Result<std::unique_ptr<sdk::Connection>> accept() override {
    const std::lock_guard lock(backlog_->mutex);
    if (backlog_->waiting.empty()) return std::unique_ptr<sdk::Connection>();
    auto pipe = std::move(backlog_->waiting.front());
    backlog_->waiting.pop_front();
    return std::unique_ptr<sdk::Connection>(std::make_unique<Connection>(std::move(pipe), counts_, copies_, device_));
  }

 private:
  std::shared_ptr<Backlog> backlog_;
  std::shared_ptr<Counts> counts_;
  std::shared_ptr<CopyStream> copies_;
  uint32_t device_;
};

class Connecting : public sdk::Connecting {
 public:
  Connecting(std::shared_ptr<Pipe> pipe, std::shared_ptr<Counts> counts, std::shared_ptr<CopyStream> copies,
             uint32_t device)
      : pipe_(std::move(pipe)), counts_(std::move(counts)), copies_(std::move(copies)), device_(device) {}
  Result<std::unique_ptr<sdk::Connection>> advance() override {
    return std::unique_ptr<sdk::Connection>(std::make_unique<Connection>(pipe_, counts_, copies_, device_));
  }

 private:
  std::shared_ptr<Pipe> pipe_;
  std::shared_ptr<Counts> counts_;
  std::shared_ptr<CopyStream> copies_;
  uint32_t device_;
};

class Context : public sdk::NetworkContext {
 public:
  ~Context() override {
    std::fprintf(stderr, "%s",
                 fmt::format("network {}: {} messages from memory of the GPU, {} from memory of the host (longest {} "
                             "bytes), {} flushes\n",
                             DEVICE_NETWORK_NAME, counts_->device_messages.load(), counts_->host_messages.load(),
                             counts_->longest_host_message.load(), counts_->flushes.load())
                     .c_str());
    for (size_t device = 0; device < kNames.size(); ++device) {
      for (size_t gpu = 0; gpu < Counts::kGpus; ++gpu) {
        const uint64_t messages = counts_->messages_by_device[device][gpu];
        if (messages == 0) continue;
        const std::string line = fmt::format("{}, memory of GPU {}: {} messages\n", kNames[device], gpu, messages);
        std::fprintf(stderr, "%s", line.c_str());
      }
    }
  }
  uint32_t device_count() const override {
    const char* const count = std::getenv("DEVICE_NETWORK_DEVICES");
    return count == nullptr ? 1 : std::clamp<uint32_t>(static_cast<uint32_t>(std::atoi(count)), 1, kNames.size());
  }
  Result<tutti_net_properties> properties(uint32_t device) const override {
    tutti_net_properties out{};
    out.name = sdk::borrow(kNames[device]);
    out.memory = kMemory;
    out.max_grouped_recvs = kFlushes ? kMaxGroup : 1;
    out.speed_gbs = 10;
    out.max_message_bytes = kMaxMessage;
    out.rail = -1;
    return out;
  }
  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t device, tutti_net_handle& handle) override {
    const std::lock_guard lock(backlogs_mutex);
    auto backlog = std::make_shared<Backlog>();
    backlogs[next_backlog] = backlog;
    const std::array<uint64_t, 2> address = {static_cast<uint64_t>(getpid()), next_backlog++};
    std::memcpy(handle.bytes, address.data(), sizeof address);
    return std::unique_ptr<sdk::Listener>(std::make_unique<Listener>(std::move(backlog), counts_, copies_, device));
  }
  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t device, const tutti_net_handle& handle) override {
    std::array<uint64_t, 2> address{};
    std::memcpy(address.data(), handle.bytes, sizeof address);
    const std::lock_guard lock(backlogs_mutex);
    const std::shared_ptr<Backlog> backlog = backlogs[address[1]].lock();
    if (address[0] != static_cast<uint64_t>(getpid()) || backlog == nullptr) {
      return Status(Code::kUnsupported, "this network joins threads of one process only; start ranks with --threads");
    }
    auto pipe = std::make_shared<Pipe>();
    const std::lock_guard backlog_lock(backlog->mutex);
    backlog->waiting.push_back(pipe);
    return std::unique_ptr<sdk::Connecting>(std::make_unique<Connecting>(std::move(pipe), counts_, copies_, device));
  }

 private:
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  std::shared_ptr<CopyStream> copies_ = std::make_shared<CopyStream>();
};

class DeviceNetwork : public sdk::Network {
 public:
  static constexpr uint64_t capabilities() { return kCapabilities; }
  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t /*communicator*/) override {
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<Context>());
  }
};

}  // namespace

TUTTI_PLUGIN(DeviceNetwork, DEVICE_NETWORK_NAME, "0.1.0", "moves memory of GPUs within a process, for tests")
