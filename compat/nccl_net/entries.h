// SPDX-License-Identifier: Apache-2.0
// The entries of NCCL's network plugins, each once, in the shape of the newest version. No exception leaves them. They
// return NCCL's results, and failures are warnings in NCCL's log.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_net/journal.h"
#include "nccl_net/network.h"
#include "nccl_plugins/network_tables.h"

namespace tutti::nccl_net::entries {

/// Makes a context, which `finalize` ends.
int init(void** context, uint64_t communicator, Logger* logger) noexcept;
/// For versions without contexts: one for the process, which stays.
int init_process(Logger* logger) noexcept;
int finalize(void* context) noexcept;
int devices(int* count) noexcept;
/// Null: there is no such device.
const Device* device(int index) noexcept;
/// A null `context` means that of init_process().
int listen(void* context, int device, void* handle, void** listener) noexcept;
int connect(void* context, int device, void* handle, void** comm) noexcept;
int accept(void* listener, void** comm) noexcept;
int add_region(void* comm, void* data, size_t bytes, int memory, void** region) noexcept;
int add_dmabuf(void* comm, void* data, size_t bytes, int memory, uint64_t offset, int fd, void** region) noexcept;
int remove_region(void* comm, void* region) noexcept;
int send(void* comm, void* data, size_t bytes, int tag, void* region, void** request) noexcept;
/// `sizes`: int or size_t.
template <class Size>
int receive(void* comm, int count, void** data, const Size* sizes, const int* tags, void** regions,
            void** request) noexcept;
int flush(void* comm, int count, void** data, int* sizes, void** regions, void** request) noexcept;
int test(void* request, int* done, int* sizes) noexcept;
int close_comm(void* comm) noexcept;
int close_listener(void* listener) noexcept;

}  // namespace tutti::nccl_net::entries
