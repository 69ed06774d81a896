// SPDX-License-Identifier: Apache-2.0
// The table of NCCL's network plugins in the version MOCK_VERSION, for mock plugins. It is written apart from the table
// of plugins/net-nccl, so that a mistake in one of both shows.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MOCK_SINCE(version) (MOCK_VERSION >= (version))

namespace {

using Log = void (*)(int level, unsigned long subsystems, const char* place, int line, const char* format, ...);
using Profile = int (*)(void** event, int type, void* parent, int64_t plugin, void* data);

struct Settings {
  int traffic_class;
};

#if MOCK_SINCE(9)
using Size = size_t;
#else
using Size = int;
#endif
#if MOCK_SINCE(8)
using RegionSize = size_t;
#else
using RegionSize = int;
#endif

struct Properties {
  const char* name;
  const char* pci;
  uint64_t guid;
  int memory;
#if MOCK_SINCE(8)
  int is_global;
#endif
#if MOCK_SINCE(9)
  int flush;
#endif
  int speed;
  int port;
  float latency;
  int comms;
  int receives;
#if MOCK_SINCE(7)
  int type;
  int type_version;
#endif
#if MOCK_SINCE(9)
  int part_count;
  int parts[MOCK_SINCE(12) ? 8 : 4];
  size_t most_bytes;
  size_t most_collective_bytes;
#endif
#if MOCK_SINCE(11)
  int requests_at_once;
#endif
#if MOCK_SINCE(12)
  int16_t rail;
  int16_t plane;
#endif
};

struct Net {
  const char* name;
#if MOCK_SINCE(11)
  int (*init)(void** context, uint64_t communicator, Settings*, Log, Profile);
#elif MOCK_SINCE(10)
  int (*init)(Log, Profile);
#else
  int (*init)(Log);
#endif
  int (*devices)(int* count);
  int (*properties)(int device, Properties*);
#if MOCK_SINCE(11)
  int (*listen)(void* context, int device, void* handle, void** listener);
  int (*connect)(void* context, int device, void* handle, void** comm, void** device_handle);
#else
  int (*listen)(int device, void* handle, void** listener);
#if MOCK_SINCE(10)
  int (*connect)(int device, Settings*, void* handle, void** comm, void** device_handle);
#elif MOCK_SINCE(7)
  int (*connect)(int device, void* handle, void** comm, void** device_handle);
#else
  int (*connect)(int device, void* handle, void** comm);
#endif
#endif
#if MOCK_SINCE(7)
  int (*accept)(void* listener, void** comm, void** device_handle);
#else
  int (*accept)(void* listener, void** comm);
#endif
  int (*add_region)(void* comm, void* data, RegionSize, int memory, void** region);
  int (*add_dmabuf)(void* comm, void* data, size_t, int memory, uint64_t offset, int fd, void** region);
  int (*remove_region)(void* comm, void* region);
#if MOCK_SINCE(10)
  int (*send)(void* comm, void* data, Size, int tag, void* region, void* parent, void** request);
  int (*receive)(void* comm, int count, void** data, Size*, int* tags, void** regions, void** parents, void** request);
#else
  int (*send)(void* comm, void* data, Size, int tag, void* region, void** request);
  int (*receive)(void* comm, int count, void** data, Size*, int* tags, void** regions, void** request);
#endif
  int (*flush)(void* comm, int count, void** data, int* sizes, void** regions, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_sender)(void* comm);
  int (*close_receiver)(void* comm);
  int (*close_listener)(void* listener);
#if MOCK_SINCE(7)
  int (*device_region)(void* comm, void* region, void** device_region);
  int (*consumed)(void* comm, int count, void* request);
#endif
#if MOCK_SINCE(9)
  int (*make_virtual)(int* device, void* parts);
#endif
#if MOCK_SINCE(11)
  int (*finalize)(void* context);
  int (*set_attributes)(void* context, void* attributes);
#endif
};

constexpr size_t kSizes[][2] = {{136, 48}, {152, 56}, {152, 64}, {160, 104}, {160, 104}, {176, 112}, {176, 128}};
static_assert(sizeof(Net) == kSizes[MOCK_VERSION - 6][0]);
static_assert(sizeof(Properties) == kSizes[MOCK_VERSION - 6][1]);

}  // namespace
