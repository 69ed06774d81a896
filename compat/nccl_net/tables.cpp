// SPDX-License-Identifier: Apache-2.0
// The tables that NCCL looks for, by version. Each entry of an older version is the newest entry with other arguments.
#include <algorithm>
#include <climits>
#include <cstdint>

#include "nccl_net/entries.h"
#include "nccl_plugins/network_tables.h"

namespace tutti::nccl_net {
namespace {

using nccl_plugins::DeviceHandle;
using nccl_plugins::NetConfig;
using nccl_plugins::Profiler;
using nccl_plugins::Table;
using nccl_plugins::Types;

constexpr uint64_t kMostMessageBytes = uint64_t{1} << 30;  // the lengths that test reports are int
constexpr double kMegabitsOfGigabyte = 8000;
constexpr uint32_t kManyConnections = 1u << 16;  // of a device without a known limit

int memory_of(uint32_t memory) {
  int out = 0;
  if ((memory & TUTTI_MEMORY_HOST) != 0) out |= nccl_plugins::kNcclHost;
  if ((memory & TUTTI_MEMORY_CUDA) != 0) out |= nccl_plugins::kNcclCuda;
  if ((memory & TUTTI_MEMORY_DMABUF) != 0) out |= nccl_plugins::kNcclDmabuf;
  return out;
}

/// NCCL takes devices with the same guid and port for one, so a device without a guid gets its number.
uint64_t guid_of(const tutti_net_properties& properties, int index) {
  return properties.guid != 0 ? properties.guid : static_cast<uint64_t>(index);
}

template <class Properties>
void describe(const Device& device, int index, Properties& out) {
  const tutti_net_properties& from = device.properties;
  const uint32_t connections = from.max_connections == 0 ? kManyConnections : from.max_connections;
  out = {};
  out.name = device.name.c_str();
  out.pci_path = device.pci_path.empty() ? nullptr : device.pci_path.c_str();
  out.guid = guid_of(from, index);
  out.memory = memory_of(from.memory);
  out.speed = static_cast<int>(std::min<double>(from.speed_gbs * kMegabitsOfGigabyte, INT_MAX));
  out.port = static_cast<int>(from.port);
  out.latency = static_cast<float>(from.latency_us);
  out.max_comms = static_cast<int>(std::min<uint32_t>(connections, INT_MAX));
  out.max_receives = static_cast<int>(device.most_receives);
  if constexpr (requires { out.max_message_bytes; }) {
    out.parts.count = 1;
    out.parts.devices[0] = index;
    out.max_message_bytes = out.max_collective_bytes = std::min(from.max_message_bytes, kMostMessageBytes);
  }
  if constexpr (requires { out.max_requests_at_once; }) out.max_requests_at_once = 1;
  if constexpr (requires { out.rail; }) {
    out.rail = static_cast<int16_t>(from.rail);
    out.plane = -1;
  }
}

template <int V>
int properties(int index, typename Types<V>::Properties* out) {
  const Device* const device = entries::device(index);
  if (device == nullptr) return nccl_plugins::kNcclInvalidArgument;
  describe(*device, index, *out);
  return nccl_plugins::kNcclSuccess;
}

int init_11(void** context, uint64_t communicator, NetConfig* /*config*/, Logger* logger, Profiler* /*profiler*/) {
  return entries::init(context, communicator, logger);
}
int init_10(Logger* logger, Profiler* /*profiler*/) {
  return entries::init_process(logger);
}
int init_6(Logger* logger) {
  return entries::init_process(logger);
}

int listen_11(void* context, int device, void* handle, void** listener) {
  return entries::listen(context, device, handle, listener);
}
int listen_6(int device, void* handle, void** listener) {
  return entries::listen(nullptr, device, handle, listener);
}

int connect_11(void* context, int device, void* handle, void** comm, DeviceHandle** /*unused*/) {
  return entries::connect(context, device, handle, comm);
}
int connect_10(int device, NetConfig* /*config*/, void* handle, void** comm, DeviceHandle** /*unused*/) {
  return entries::connect(nullptr, device, handle, comm);
}
int connect_7(int device, void* handle, void** comm, DeviceHandle** /*unused*/) {
  return entries::connect(nullptr, device, handle, comm);
}
int connect_6(int device, void* handle, void** comm) {
  return entries::connect(nullptr, device, handle, comm);
}

int accept_7(void* listener, void** comm, DeviceHandle** /*unused*/) {
  return entries::accept(listener, comm);
}
int accept_6(void* listener, void** comm) {
  return entries::accept(listener, comm);
}

template <class Region>
int add_region(void* comm, void* data, Region bytes, int memory, void** region) {
  return entries::add_region(comm, data, static_cast<size_t>(bytes), memory, region);
}

int send_10(void* comm, void* data, size_t bytes, int tag, void* region, void* /*parent*/, void** request) {
  return entries::send(comm, data, bytes, tag, region, request);
}
template <class Size>
int send_6(void* comm, void* data, Size bytes, int tag, void* region, void** request) {
  return entries::send(comm, data, static_cast<size_t>(bytes), tag, region, request);
}
int receive_10(void* comm, int count, void** data, size_t* sizes, int* tags, void** regions, void** /*parents*/,
               void** request) {
  return entries::receive(comm, count, data, static_cast<const size_t*>(sizes), tags, regions, request);
}
template <class Size>
int receive_6(void* comm, int count, void** data, Size* sizes, int* tags, void** regions, void** request) {
  return entries::receive(comm, count, data, static_cast<const Size*>(sizes), tags, regions, request);
}

/// Entries that stay null: memory for GPUs that drive the device, devices of several devices, hints.
template <int V>
constexpr Table<V> table() {
  using Message = typename Types<V>::Message;
  Table<V> out{};
  out.name = "Tutti";
  if constexpr (V >= 11) {
    out.init = init_11;
    out.listen = listen_11;
    out.connect = connect_11;
    out.tail.finalize = entries::finalize;
  } else {
    out.listen = listen_6;
  }
  if constexpr (V == 10) {
    out.init = init_10;
    out.connect = connect_10;
  }
  if constexpr (V < 10) out.init = init_6;
  if constexpr (V >= 7 && V < 10) out.connect = connect_7;
  if constexpr (V >= 7) out.accept = accept_7;
  if constexpr (V == 6) {
    out.connect = connect_6;
    out.accept = accept_6;
  }
  if constexpr (V >= 10) {
    out.send = send_10;
    out.receive = receive_10;
  } else {
    out.send = send_6<Message>;
    out.receive = receive_6<Message>;
  }
  out.devices = entries::devices;
  out.properties = properties<V>;
  out.add_region = add_region<typename Types<V>::Region>;
  out.add_dmabuf = entries::add_dmabuf;
  out.remove_region = entries::remove_region;
  out.flush = entries::flush;
  out.test = entries::test;
  out.close_sender = out.close_receiver = entries::close_comm;
  out.close_listener = entries::close_listener;
  return out;
}

}  // namespace
}  // namespace tutti::nccl_net

#define TUTTI_NCCL_NET_TABLE(version)                                                      \
  extern "C" TUTTI_API const tutti::nccl_plugins::Table<version> ncclNetPlugin_v##version; \
  constinit const tutti::nccl_plugins::Table<version> ncclNetPlugin_v##version = tutti::nccl_net::table<version>()

TUTTI_NCCL_NET_TABLE(6);
TUTTI_NCCL_NET_TABLE(7);
TUTTI_NCCL_NET_TABLE(8);
TUTTI_NCCL_NET_TABLE(9);
TUTTI_NCCL_NET_TABLE(10);
TUTTI_NCCL_NET_TABLE(11);
TUTTI_NCCL_NET_TABLE(12);

#undef TUTTI_NCCL_NET_TABLE
