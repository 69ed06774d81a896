// SPDX-License-Identifier: Apache-2.0
// The binary layout of NCCL's network plugins. A plugin exports one table of functions per version of the interface,
// as the data symbol ncclNetPlugin_v<version>. Each difference between versions is written once, as a condition.
//
//   version  since NCCL  difference to the version before
//   6        2.13        sizes are int; no context, no device handles
//   7        2.19        connect and accept get a device handle; type of the device; two entries for GPU offload
//   8        2.20        the size of a region is size_t; regIsGlobal
//   9        2.24        the size of a message is size_t; virtual devices; limits of message sizes
//   10       2.26        init gets a profiler; connect gets a configuration; messages get a parent event
//   11       2.28        a context per communicator, which init makes and finalize ends
//   12       2.30        virtual devices of 8 devices; rail and plane
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::nccl_plugins {

inline constexpr int kNewestVersion = 12;
inline constexpr int kOldestVersion = 6;
inline constexpr size_t kHandleBytes = 128;

/// Values of ncclResult_t.
enum NcclCode : int {
  kNcclSuccess = 0,
  kNcclCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
  kNcclTimeout = 8,
};

/// Kinds of memory, as bits of a device and as the type of a region.
enum NcclMemory : int { kNcclHost = 1, kNcclCuda = 2, kNcclDmabuf = 4 };

/// Levels of a line of the log.
enum NcclLevel : int { kNcclVersionLine = 1, kNcclWarn = 2, kNcclInfo = 3, kNcclAbort = 4, kNcclTrace = 5 };

using Logger = void(int level, unsigned long subsystems, const char* place, int line, const char* format, ...);
using Profiler = int(void** event, int type, void* parent, int64_t plugin, void* data);

/// The configuration of a communicator's network.
struct NetConfig {
  int traffic_class = -1;  ///< -1: none
};

/// Filled by connect and accept for devices that GPUs drive themselves.
struct DeviceHandle {
  int type;
  int version;
  void* handle;
  size_t bytes;
  int needs_progress;
};
static_assert(sizeof(DeviceHandle) == 32);

template <int Members>
struct VirtualDevice {
  int count;
  std::array<int, Members> devices;
};

// Properties of a device. speed: Mbit/s; latency: µs; max_comms, max_receives: connections, buffers of one receive.
struct Properties6 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int memory;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
};
struct Properties7 : Properties6 {
  int device_type;
  int device_version;
};
struct Properties8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int memory;
  int registrations_are_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};
template <int Members>
struct Properties9 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int memory;
  int registrations_are_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<Members> parts;
  size_t max_message_bytes;
  size_t max_collective_bytes;
};
struct Properties11 : Properties9<4> {
  int max_requests_at_once;
};
struct Properties12 : Properties9<8> {
  int max_requests_at_once;
  int16_t rail;
  int16_t plane;
};

/// The types of version V.
template <int V>
struct Types {
  template <bool Is, class Yes, class No>
  using If = std::conditional_t<Is, Yes, No>;

  using Message = If<(V >= 9), size_t, int>;
  using Region = If<(V >= 8), size_t, int>;
  using Properties =
      If<(V >= 12), Properties12,
         If<(V >= 11), Properties11,
            If<(V >= 9), Properties9<4>, If<(V >= 8), Properties8, If<(V >= 7), Properties7, Properties6>>>>>;

  using Init = If<(V >= 11), int(void** context, uint64_t communicator, NetConfig*, Logger*, Profiler*),
                  If<(V == 10), int(Logger*, Profiler*), int(Logger*)>>;
  using Listen = If<(V >= 11), int(void* context, int device, void* handle, void** listener),
                    int(int device, void* handle, void** listener)>;
  using Connect =
      If<(V >= 11), int(void* context, int device, void* handle, void** comm, DeviceHandle**),
         If<(V == 10), int(int device, NetConfig*, void* handle, void** comm, DeviceHandle**),
            If<(V >= 7), int(int device, void* handle, void** comm, DeviceHandle**), int(int, void*, void**)>>>;
  using Accept = If<(V >= 7), int(void* listener, void** comm, DeviceHandle**), int(void* listener, void** comm)>;
  using Send = If<(V >= 10), int(void* comm, void* data, size_t, int tag, void* region, void* parent, void** request),
                  int(void* comm, void* data, Message, int tag, void* region, void** request)>;
  using Receive =
      If<(V >= 10),
         int(void* comm, int count, void** data, size_t*, int* tags, void** regions, void** parents, void** request),
         int(void* comm, int count, void** data, Message*, int* tags, void** regions, void** request)>;
};

/// The entries behind the entries of version 6.
template <int V>
struct Tail {
  void* get_device_region;
  void* receive_consumed;
};
template <>
struct Tail<6> {};
template <>
struct Tail<9> : Tail<8> {
  void* make_virtual_device;
};
template <>
struct Tail<10> : Tail<9> {};
template <>
struct Tail<11> : Tail<10> {
  int (*finalize)(void* context);
  void* set_attributes;
};
template <>
struct Tail<12> : Tail<11> {};

template <int V>
struct Table {
  const char* name;
  typename Types<V>::Init* init;
  int (*devices)(int* count);
  int (*properties)(int device, typename Types<V>::Properties*);
  typename Types<V>::Listen* listen;
  typename Types<V>::Connect* connect;
  typename Types<V>::Accept* accept;
  int (*add_region)(void* comm, void* data, typename Types<V>::Region, int memory, void** region);
  int (*add_dmabuf)(void* comm, void* data, size_t, int memory, uint64_t offset, int fd, void** region);
  int (*remove_region)(void* comm, void* region);
  typename Types<V>::Send* send;
  typename Types<V>::Receive* receive;
  int (*flush)(void* comm, int count, void** data, int* sizes, void** regions, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_sender)(void* comm);
  int (*close_receiver)(void* comm);
  int (*close_listener)(void* comm);
  [[no_unique_address]] Tail<V> tail;
};

static_assert(sizeof(Properties6) == 48 && sizeof(Properties7) == 56 && sizeof(Properties8) == 64);
static_assert(sizeof(Properties9<4>) == 104 && sizeof(Properties11) == 112 && sizeof(Properties12) == 128);
static_assert(sizeof(Table<6>) == 136 && sizeof(Table<7>) == 152 && sizeof(Table<8>) == 152);
static_assert(sizeof(Table<9>) == 160 && sizeof(Table<10>) == 160);
static_assert(sizeof(Table<11>) == 176 && sizeof(Table<12>) == 176);

}  // namespace tutti::nccl_plugins
