// SPDX-License-Identifier: Apache-2.0
// One interface for all versions of NCCL's network plugins, in the shape of the newest version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nccl_plugins/network_tables.h"

namespace tutti::net_nccl {

using nccl_plugins::kHandleBytes;
using nccl_plugins::kNcclCuda;
using nccl_plugins::kNcclDmabuf;
using nccl_plugins::kNcclHost;
using nccl_plugins::kNcclInProgress;
using nccl_plugins::kNcclInternalError;
using nccl_plugins::kNcclInvalidArgument;
using nccl_plugins::kNcclRemoteError;
using nccl_plugins::kNcclSuccess;
using nccl_plugins::kNcclSystemError;
using nccl_plugins::kNcclTimeout;
using nccl_plugins::kNcclWarn;
using nccl_plugins::kNewestVersion;
using nccl_plugins::kOldestVersion;
using nccl_plugins::Logger;

/// A device as every version describes it. A field that the version lacks has the value that NCCL assumes.
struct Device {
  std::string name;
  std::string pci_path;
  uint64_t guid = 0;
  int memory = 0;  ///< NcclMemory bits
  int speed_mbit = 0;
  int port = 0;
  float latency_us = 0;
  int max_receives = 1;
  int type = 0;  ///< not 0: GPUs must drive it
  uint64_t max_message_bytes = uint64_t{1} << 30;
  int rail = -1;
};

/// The table of one plugin. Functions return NCCL's codes; a null request or connection means "not now". The object
/// has no state but the table and the configuration.
class Adapter {
 public:
  virtual ~Adapter() = default;
  Adapter() = default;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  virtual int version() const = 0;
  virtual const char* name() const = 0;
  /// Whether init makes a context for each communicator. Otherwise init is called once per process.
  bool has_contexts() const { return version() >= 11; }
  virtual bool has_dmabuf() const = 0;

  virtual int init(void** context, uint64_t communicator, Logger* logger) = 0;
  virtual int finalize(void* context) = 0;
  virtual int devices(int* count) = 0;
  virtual int describe(int device, Device& out) = 0;
  virtual int listen(void* context, int device, void* handle, void** listener) = 0;
  virtual int connect(void* context, int device, void* handle, void** comm) = 0;
  virtual int accept(void* listener, void** comm) = 0;
  virtual int add_region(void* comm, void* data, uint64_t bytes, int memory, void** region) = 0;
  virtual int add_dmabuf(void* comm, void* data, uint64_t bytes, uint64_t offset, int fd, void** region) = 0;
  virtual int remove_region(void* comm, void* region) = 0;
  virtual int send(void* comm, void* data, uint64_t bytes, int tag, void* region, void** request) = 0;
  virtual int receive(void* comm, int count, void** data, const uint64_t* bytes, int* tags, void** regions,
                      void** request) = 0;
  virtual int flush(void* comm, int count, void** data, int* sizes, void** regions, void** request) = 0;
  virtual int test(void* request, int* done, int* sizes) = 0;
  virtual int close_sender(void* comm) = 0;
  virtual int close_receiver(void* comm) = 0;
  virtual int close_listener(void* listener) = 0;
};

/// The most buffers of one receive.
inline constexpr int kMostBuffers = 8;

/// `table`: the data symbol ncclNetPlugin_v<version>, with version from kOldestVersion to kNewestVersion.
std::unique_ptr<Adapter> make_adapter(int version, void* table);

}  // namespace tutti::net_nccl
