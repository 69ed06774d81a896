// SPDX-License-Identifier: Apache-2.0
// Communicators come to life: from an id, for all GPUs of a process, out of another one.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <vector>

#include "device/cuda/runtime.h"
#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/config.h"
#include "nccl/environment.h"
#include "nccl/errors.h"
#include "nccl/group.h"

namespace tutti::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

struct Place {
  int rank;
  int size;
};

ncclResult_t check(const ncclComm_t* comm, Place place, const char* call) {
  if (comm == nullptr) return fail(ncclInvalidArgument, "{}: the place for the communicator is null", call);
  if (place.size < 1) return fail(ncclInvalidArgument, "{}: {} ranks", call, place.size);
  if (place.rank >= 0 && place.rank < place.size) return ncclSuccess;
  return fail(ncclInvalidArgument, "{}: rank {} of {}; ranks count from 0", call, place.rank, place.size);
}

ncclResult_t current_device(int& device) {
  const auto current = cuda::current_device();
  if (current.ok()) device = *current;
  return report(current.status());
}

/// Arguments are checked. The handle is given out at once; the rest is done now, in a thread, or by GroupEnd.
ncclResult_t create(ncclComm_t* handle, const ncclUniqueId& nccl_id, Place place, int device, const Wishes& wishes) {
  *handle = nullptr;
  auto settings = Settings::of_process();
  TUTTI_NCCL_TRY(report(settings.status()));
  name_ignored(wishes);
  propose(wishes, *settings);
  const auto id = std::bit_cast<UniqueId>(nccl_id);
  auto* const comm = new ncclComm;
  comm->device = device;
  comm->rank = place.rank;
  comm->size = place.size;
  comm->blocking = wishes.blocking;
  comm->clique.assign(nccl_id.internal, sizeof nccl_id.internal);
  return submit({comm, nullptr, handle, [comm, id, options = settings->options()]() -> Status {
                   TUTTI_ASSIGN(comm->communicator, Communicator::create(id, comm->rank, comm->size, options));
                   return {};
                 }});
}

ncclResult_t init_rank(ncclComm_t* handle, const ncclUniqueId& id, Place place, const ncclConfig_t* config,
                       const char* call) {
  TUTTI_NCCL_TRY(check(handle, place, call));
  *handle = nullptr;
  Wishes wishes;
  TUTTI_NCCL_TRY(read(config, true, wishes));
  int device = 0;
  TUTTI_NCCL_TRY(current_device(device));
  return create(handle, id, place, device, wishes);
}

ncclResult_t unique_id(ncclUniqueId& out) {
  const auto settings = Settings::of_process();
  TUTTI_NCCL_TRY(report(settings.status()));
  const auto interfaces = settings->interfaces();
  TUTTI_NCCL_TRY(report(interfaces.status()));
  const auto id = UniqueId::create(*interfaces);
  TUTTI_NCCL_TRY(report(id.status()));
  out = std::bit_cast<ncclUniqueId>(*id);
  return ncclSuccess;
}

ncclResult_t check_devices(const std::vector<int>& devices) {
  if (std::any_of(devices.begin(), devices.end(), [](int device) { return device < 0; })) {
    return fail(ncclInvalidArgument, "CommInitAll: a device's number is negative");
  }
  if (std::set<int>(devices.begin(), devices.end()).size() < devices.size()) {
    return fail(ncclInvalidUsage, "CommInitAll: a device is named twice; each rank needs a GPU of its own");
  }
  int count = 0;
  TUTTI_NCCL_TRY(report(cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount")));
  const int largest = *std::max_element(devices.begin(), devices.end());
  if (largest < count) return ncclSuccess;
  return fail(ncclInvalidArgument, "CommInitAll: device {}, but there are {}", largest, count);
}

ncclResult_t init_all(ncclComm_t* comms, int count, const int* list) {
  if (comms == nullptr) return fail(ncclInvalidArgument, "CommInitAll: the place for the communicators is null");
  if (count < 0) return fail(ncclInvalidArgument, "CommInitAll: {} devices", count);
  if (count == 0) return ncclSuccess;
  std::vector<int> devices(static_cast<size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
  if (list != nullptr) devices.assign(list, list + count);
  TUTTI_NCCL_TRY(check_devices(devices));
  ncclUniqueId id;
  TUTTI_NCCL_TRY(unique_id(id));
  Wishes wishes;
  TUTTI_NCCL_TRY(read(nullptr, true, wishes));
  start_group();
  for (int rank = 0; rank < count; ++rank) {
    remember(create(comms + rank, id, {rank, count}, devices[static_cast<size_t>(rank)], wishes));
  }
  return end_group();
}

/// The new communicator's settings are its parent's: splitting has none of its own in Tutti.
ncclResult_t split(ncclComm* parent, int color, int key, ncclComm_t* handle, const ncclConfig_t* config) {
  if (handle == nullptr) return fail(ncclInvalidArgument, "CommSplit: the place for the communicator is null");
  *handle = nullptr;
  TUTTI_NCCL_TRY(check_usable(parent, "CommSplit"));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return fail(ncclInvalidArgument, "CommSplit: color {}; colors count from 0, or are NCCL_SPLIT_NOCOLOR", color);
  }
  Wishes wishes;
  TUTTI_NCCL_TRY(read(config, parent->blocking, wishes));
  name_ignored(wishes);
  auto* const comm = new ncclComm;
  comm->device = parent->device;
  comm->blocking = wishes.blocking;
  comm->clique = fmt::format("{}/{}:{}", parent->clique, ++parent->splits, color);
  // Who joins none takes part all the same.
  ncclComm_t* const place = color == NCCL_SPLIT_NOCOLOR ? nullptr : handle;
  return submit({comm, parent, place, [comm, parent, color, key]() -> Status {
                   TUTTI_ASSIGN(comm->communicator, parent->communicator->split(color, key));
                   if (!comm->communicator) return {};
                   comm->rank = comm->communicator->rank();
                   comm->size = comm->communicator->size();
                   return {};
                 }});
}

ncclResult_t check_excluded(const ncclComm* parent, const int* list, int count) {
  if (list == nullptr) return fail(ncclInvalidArgument, "CommShrink: the list of ranks is null");
  if (count < 1 || count >= parent->size) {
    return fail(ncclInvalidArgument, "CommShrink: {} of {} ranks to exclude", count, parent->size);
  }
  for (int i = 0; i < count; ++i) {
    if (list[i] < 0 || list[i] >= parent->size) return fail(ncclInvalidArgument, "CommShrink: no rank {}", list[i]);
    if (list[i] == parent->rank) return fail(ncclInvalidArgument, "CommShrink: the caller excludes itself");
  }
  return ncclSuccess;
}

/// Only those that remain call this, and a split needs all: one rank alone needs nobody, more are refused.
ncclResult_t shrink(ncclComm* parent, const int* list, int count, ncclComm_t* handle, const ncclConfig_t* config) {
  if (handle == nullptr) return fail(ncclInvalidArgument, "CommShrink: the place for the communicator is null");
  *handle = nullptr;
  TUTTI_NCCL_TRY(check_handle(parent, "CommShrink"));
  TUTTI_NCCL_TRY(check_excluded(parent, list, count));
  if (std::set<int>(list, list + count).size() + 1 < static_cast<size_t>(parent->size)) {
    return fail(ncclInvalidUsage,
                "CommShrink: Tutti cannot yet make a communicator of some of the ranks without the "
                "others; make a new one with ncclCommInitRank");
  }
  Wishes wishes;
  TUTTI_NCCL_TRY(read(config, parent->blocking, wishes));
  ncclUniqueId id;
  TUTTI_NCCL_TRY(unique_id(id));
  return create(handle, id, {0, 1}, parent->device, wishes);
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

TUTTI_NCCL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  if (id == nullptr) return fail(ncclInvalidArgument, "GetUniqueId: the place for the id is null");
  return unique_id(*id);
}

TUTTI_NCCL(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank)) {
  return remember(init_rank(comm, id, {rank, nranks}, nullptr, "CommInitRank"));
}

TUTTI_NCCL(ncclResult_t, ncclCommInitRankConfig,
           (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  return remember(init_rank(comm, id, {rank, nranks}, config, "CommInitRankConfig"));
}

// Several ids spread the load of the meeting, which is Tutti's own affair: all ranks meet at the first.
TUTTI_NCCL(ncclResult_t, ncclCommInitRankScalable,
           (ncclComm_t * comm, int nranks, int rank, int id_count, ncclUniqueId* ids, ncclConfig_t* config)) {
  if (ids == nullptr || id_count < 1 || id_count > nranks) {
    return remember(fail(ncclInvalidArgument, "CommInitRankScalable: {} ids for {} ranks", id_count, nranks));
  }
  return remember(init_rank(comm, ids[0], {rank, nranks}, config, "CommInitRankScalable"));
}

TUTTI_NCCL(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices)) {
  return remember(init_all(comms, count, devices));
}

TUTTI_NCCL(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config)) {
  return remember(split(comm, color, key, made, config));
}

TUTTI_NCCL(ncclResult_t, ncclCommShrink,
           (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags)) {
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return remember(fail(ncclInvalidArgument, "CommShrink: flags {} are unknown", flags));
  }
  return remember(shrink(comm, excluded, count, made, config));
}
