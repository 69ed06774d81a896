// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"

#include <algorithm>
#include <array>
#include <limits>

namespace tutti::net_nccl {
namespace {

using nccl_plugins::DeviceHandle;
using nccl_plugins::NetConfig;
using nccl_plugins::Table;
using nccl_plugins::Types;

/// NCCL hands a callback to init, so plugins may call it without a check. Events are not recorded.
int ignore_event(void** /*event*/, int /*type*/, void* /*parent*/, int64_t /*plugin*/, void* /*data*/) {
  return kNcclSuccess;
}

std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

template <class Properties>
Device device_of(const Properties& from) {
  Device device;
  device.name = text_of(from.name);
  device.pci_path = text_of(from.pci_path);
  device.guid = from.guid;
  device.memory = from.memory;
  device.speed_mbit = from.speed;
  device.port = from.port;
  device.latency_us = from.latency;
  device.max_receives = std::clamp(from.max_receives, 1, kMostBuffers);
  if constexpr (requires { from.device_type; }) device.type = from.device_type;
  // Lengths of received messages are int in every version, so NCCL's step of 1 GiB is the limit of each message.
  if constexpr (requires { from.max_message_bytes; }) {
    device.max_message_bytes = std::min<uint64_t>(device.max_message_bytes, from.max_message_bytes);
  }
  if constexpr (requires { from.rail; }) device.rail = from.rail;
  return device;
}

template <int V>
class AdapterOf final : public Adapter {
 public:
  explicit AdapterOf(Table<V>& table) : table_(table) {}

  int version() const override { return V; }
  const char* name() const override { return table_.name == nullptr ? "" : table_.name; }
  bool has_dmabuf() const override { return table_.add_dmabuf != nullptr; }

  int init(void** context, uint64_t communicator, Logger* logger) override {
    if constexpr (V >= 11) {
      return table_.init(context, communicator, &config_, logger, ignore_event);
    } else if constexpr (V == 10) {
      return table_.init(logger, ignore_event);
    } else {
      return table_.init(logger);
    }
  }
  int finalize(void* context) override {
    if constexpr (V >= 11) {
      return table_.tail.finalize(context);
    } else {
      return kNcclSuccess;
    }
  }
  int devices(int* count) override { return table_.devices(count); }
  int describe(int device, Device& out) override {
    typename Types<V>::Properties properties{};
    const int code = table_.properties(device, &properties);
    if (code == kNcclSuccess) out = device_of(properties);
    return code;
  }

  int listen(void* context, int device, void* handle, void** listener) override {
    if constexpr (V >= 11) {
      return table_.listen(context, device, handle, listener);
    } else {
      return table_.listen(device, handle, listener);
    }
  }
  int connect(void* context, int device, void* handle, void** comm) override {
    [[maybe_unused]] DeviceHandle* unused = nullptr;
    if constexpr (V >= 11) {
      return table_.connect(context, device, handle, comm, &unused);
    } else if constexpr (V == 10) {
      return table_.connect(device, &config_, handle, comm, &unused);
    } else if constexpr (V >= 7) {
      return table_.connect(device, handle, comm, &unused);
    } else {
      return table_.connect(device, handle, comm);
    }
  }
  int accept(void* listener, void** comm) override {
    [[maybe_unused]] DeviceHandle* unused = nullptr;
    if constexpr (V >= 7) {
      return table_.accept(listener, comm, &unused);
    } else {
      return table_.accept(listener, comm);
    }
  }

  int add_region(void* comm, void* data, uint64_t bytes, int memory, void** region) override {
    using Bytes = typename Types<V>::Region;
    if (bytes > static_cast<uint64_t>(std::numeric_limits<Bytes>::max())) return kNcclInvalidArgument;
    return table_.add_region(comm, data, static_cast<Bytes>(bytes), memory, region);
  }
  int add_dmabuf(void* comm, void* data, uint64_t bytes, uint64_t offset, int fd, void** region) override {
    return table_.add_dmabuf(comm, data, bytes, kNcclCuda, offset, fd, region);
  }
  int remove_region(void* comm, void* region) override { return table_.remove_region(comm, region); }

  int send(void* comm, void* data, uint64_t bytes, int tag, void* region, void** request) override {
    if constexpr (V >= 10) {
      return table_.send(comm, data, bytes, tag, region, nullptr, request);
    } else {
      return table_.send(comm, data, static_cast<Message>(bytes), tag, region, request);
    }
  }
  int receive(void* comm, int count, void** data, const uint64_t* bytes, int* tags, void** regions,
              void** request) override {
    std::array<Message, kMostBuffers> sizes{};
    for (int i = 0; i < count; ++i) sizes.at(static_cast<size_t>(i)) = static_cast<Message>(bytes[i]);
    if constexpr (V >= 10) {
      std::array<void*, kMostBuffers> parents{};
      return table_.receive(comm, count, data, sizes.data(), tags, regions, parents.data(), request);
    } else {
      return table_.receive(comm, count, data, sizes.data(), tags, regions, request);
    }
  }
  int flush(void* comm, int count, void** data, int* sizes, void** regions, void** request) override {
    return table_.flush(comm, count, data, sizes, regions, request);
  }
  int test(void* request, int* done, int* sizes) override { return table_.test(request, done, sizes); }

  int close_sender(void* comm) override { return table_.close_sender(comm); }
  int close_receiver(void* comm) override { return table_.close_receiver(comm); }
  int close_listener(void* listener) override { return table_.close_listener(listener); }

 private:
  using Message = typename Types<V>::Message;

  Table<V>& table_;
  NetConfig config_;
};

template <int V>
std::unique_ptr<Adapter> make(int version, void* table) {
  if (version == V) return std::make_unique<AdapterOf<V>>(*static_cast<Table<V>*>(table));
  if constexpr (V > kOldestVersion) return make<V - 1>(version, table);
  return nullptr;
}

}  // namespace

std::unique_ptr<Adapter> make_adapter(int version, void* table) {
  return make<kNewestVersion>(version, table);
}

}  // namespace tutti::net_nccl
