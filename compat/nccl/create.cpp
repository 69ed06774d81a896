// SPDX-License-Identifier: Apache-2.0
// Creates communicators: from an id, for all GPUs of a process, or from an existing communicator.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/runtime.h"
#include "launcher/meeting.h"
#include "log/log.h"
#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/config.h"
#include "nccl/environment.h"
#include "nccl/errors.h"
#include "nccl/group.h"
#include "nccl/variables.h"

namespace tutti::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

/// A rank of a communicator, and the number of its ranks.
struct CommRank {
  int rank;
  int size;
};

ncclResult_t check(const ncclComm_t* comm, CommRank comm_rank, const char* call) {
  if (comm == nullptr) return fail(ncclInvalidArgument, "{}: the place for the communicator is null", call);
  if (comm_rank.size < 1) return fail(ncclInvalidArgument, "{}: {} ranks", call, comm_rank.size);
  if (comm_rank.rank >= 0 && comm_rank.rank < comm_rank.size) return ncclSuccess;
  return fail(ncclInvalidArgument, "{}: rank {} of {}; ranks count from 0", call, comm_rank.rank, comm_rank.size);
}

ncclResult_t current_device(int& device) {
  const auto current = cuda::current_device();
  if (current.ok()) device = *current;
  return report(current.status());
}

/// The first step of all ranks of a new communicator: no GPU may belong to two ranks.
Status settle(ncclComm& comm) {
  comm.rank = comm.communicator->rank();
  comm.size = comm.communicator->size();
  log::info("nccl: rank {} of {} on GPU {}", comm.rank, comm.size, comm.device);
  if (comm.size == 1) return {};
  cudaDeviceProp properties{};
  TUTTI_CUDA_TRY(cudaGetDeviceProperties(&properties, comm.device));
  const std::span<const char> own(properties.uuid.bytes);
  TUTTI_ASSIGN(const auto all, comm.communicator->exchange(std::as_bytes(own)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto twin = std::find(all.begin() + static_cast<ptrdiff_t>(rank) + 1, all.end(), all[rank]);
    if (twin == all.end() || switched("NCCL_MULTI_RANK_GPU_ENABLE", false)) continue;
    return {Code::kMismatch, fmt::format("ranks {} and {} use the same GPU; NCCL_MULTI_RANK_GPU_ENABLE=1 allows it",
                                         rank, twin - all.begin())};
  }
  return {};
}

/// The settings of a communicator to be made.
Result<Settings> settings_for(const Wishes& wishes) {
  TUTTI_ASSIGN(Settings settings, Settings::of_process());
  name_ignored(wishes);
  propose(wishes, settings);
  return settings;
}

/// The id that NCCL_COMM_ID=host:port stands for; UniqueId() where that is not set.
Result<UniqueId> id_of_environment() {
  const auto address = variable("NCCL_COMM_ID");
  if (!address) return UniqueId();
  TUTTI_ASSIGN(const std::string secret, launcher::secret_of_environment("nccl: NCCL_COMM_ID"));
  return UniqueId::from_string(fmt::format("{}:{}", *address, secret));
}

/// Rank 0 serves an id of this sort, not the process that asked for it first: every process asks for the same id.
Status serve_if_of_environment(const UniqueId& id, int rank) {
  if (rank != 0) return {};
  TUTTI_ASSIGN(const UniqueId fixed, id_of_environment());
  if (fixed == UniqueId() || fixed != id) return {};
  TUTTI_ASSIGN(const std::string secret, launcher::secret_of_environment("nccl: NCCL_COMM_ID"));
  return UniqueId::create_at(*variable("NCCL_COMM_ID"), secret).status();
}

/// Arguments are checked. The handle is given out at once; the rest is done now, in a thread, or by GroupEnd.
ncclResult_t create(ncclComm_t* handle, const ncclUniqueId& nccl_id, CommRank comm_rank, int device,
                    const Wishes& wishes) {
  *handle = nullptr;
  const auto settings = settings_for(wishes);
  TUTTI_NCCL_TRY(report(settings.status()));
  const auto id = std::bit_cast<UniqueId>(nccl_id);
  auto* const comm = new ncclComm;
  comm->device = device;
  comm->rank = comm_rank.rank;
  comm->size = comm_rank.size;
  comm->blocking = wishes.blocking;
  comm->wishes = wishes;
  comm->clique.assign(nccl_id.internal, sizeof nccl_id.internal);
  return submit({comm, nullptr, handle, [comm, id, settings = *settings]() -> Status {
                   TUTTI_TRY(serve_if_of_environment(id, comm->rank));
                   TUTTI_ASSIGN(comm->communicator,
                                Communicator::create(id, comm->rank, comm->size, settings.options()));
                   return settle(*comm);
                 }});
}

ncclResult_t init_rank(ncclComm_t* handle, const ncclUniqueId& id, CommRank comm_rank, const ncclConfig_t* config,
                       const char* call) {
  TUTTI_NCCL_TRY(check(handle, comm_rank, call));
  *handle = nullptr;
  Wishes wishes;
  TUTTI_NCCL_TRY(read(config, true, wishes));
  int device = 0;
  TUTTI_NCCL_TRY(current_device(device));
  return create(handle, id, comm_rank, device, wishes);
}

Result<UniqueId> make_id() {
  TUTTI_ASSIGN(const Settings settings, Settings::of_process());
  TUTTI_ASSIGN(const UniqueId fixed, id_of_environment());
  if (fixed != UniqueId()) return fixed;
  TUTTI_ASSIGN(const std::string interfaces, settings.interfaces());
  return UniqueId::create(interfaces);
}

ncclResult_t unique_id(ncclUniqueId& out) {
  const auto id = make_id();
  if (id.ok()) out = std::bit_cast<ncclUniqueId>(*id);
  return report(id.status());
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

/// Makes the communicator of this rank from its parent; nothing: this rank joins none.
using Making = std::function<Result<std::optional<Communicator>>(Communicator& parent, const Options& options)>;

Status part(ncclComm& comm, ncclComm& parent, const Making& make, const Settings& settings) {
  const Visit visit(parent);
  if (!visit) return {Code::kAborted, "the communicator to make another from was aborted"};
  TUTTI_ASSIGN(comm.communicator, make(*parent.communicator, settings.options()));
  return comm.communicator ? settle(comm) : Status();
}

/// A new communicator's configuration is the given configuration; members that it leaves undefined come from its
/// parent.
ncclResult_t derive(ncclComm* parent, ncclComm_t* handle, const ncclConfig_t* config, std::string clique,
                    const Making& make) {
  Wishes wishes;
  TUTTI_NCCL_TRY(read(config, parent->blocking, wishes));
  if (!wishes.max_ctas) wishes.max_ctas = parent->wishes.max_ctas;
  if (wishes.network.empty()) wishes.network = parent->wishes.network;
  const auto settings = settings_for(wishes);
  TUTTI_NCCL_TRY(report(settings.status()));
  auto* const comm = new ncclComm;
  comm->device = parent->device;
  comm->blocking = wishes.blocking;
  comm->wishes = wishes;
  comm->clique = fmt::format("{}/{}:{}", parent->clique, ++parent->splits, clique);
  return submit({comm, parent, handle, [comm, parent, make, settings = *settings]() -> Status {
                   return part(*comm, *parent, make, settings);
                 }});
}

/// Made, and not finalized; it may be revoked, or broken.
ncclResult_t check_parent(const ncclComm* parent, const char* call) {
  TUTTI_NCCL_TRY(check_handle(parent, call));
  return parent->revoked ? ncclSuccess : check_usable(parent, call);
}

ncclResult_t split(ncclComm* parent, int color, int key, ncclComm_t* handle, const ncclConfig_t* config) {
  if (handle == nullptr) return fail(ncclInvalidArgument, "CommSplit: the place for the communicator is null");
  *handle = nullptr;
  TUTTI_NCCL_TRY(check_parent(parent, "CommSplit"));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return fail(ncclInvalidArgument, "CommSplit: color {}; colors count from 0, or are NCCL_SPLIT_NOCOLOR", color);
  }
  // The ranks of a revoked communicator, which is broken, first meet again.
  const Making make = [color, key, revoked = parent->revoked.load()](
                          Communicator& whole, const Options& options) -> Result<std::optional<Communicator>> {
    if (!revoked) return whole.split(color, key, options);
    TUTTI_ASSIGN(Communicator again, whole.shrink({}, ShrinkMode::kKeep, options));
    return again.split(color, key);
  };
  // A rank that joins no communicator takes part in the call, too.
  ncclComm_t* const place = color == NCCL_SPLIT_NOCOLOR ? nullptr : handle;
  return derive(parent, place, config, std::to_string(color), make);
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

/// Only the remaining ranks call this function.
ncclResult_t shrink(ncclComm* parent, const int* list, int count, ncclComm_t* handle, const ncclConfig_t* config,
                    bool aborts) {
  if (handle == nullptr) return fail(ncclInvalidArgument, "CommShrink: the place for the communicator is null");
  *handle = nullptr;
  TUTTI_NCCL_TRY(check_parent(parent, "CommShrink"));
  TUTTI_NCCL_TRY(check_excluded(parent, list, count));
  std::vector<int> members;
  for (int rank = 0; rank < parent->size; ++rank) {
    if (std::find(list, list + count, rank) == list + count) members.push_back(rank);
  }
  const std::string clique = fmt::format("{}", fmt::join(members, ","));
  const ShrinkMode mode = aborts ? ShrinkMode::kAbort : ShrinkMode::kKeep;
  const Making make = [excluded = std::vector<int>(list, list + count), mode](
                          Communicator& whole, const Options& options) -> Result<std::optional<Communicator>> {
    TUTTI_ASSIGN(Communicator less, whole.shrink(excluded, mode, options));
    return std::optional<Communicator>(std::move(less));
  };
  return derive(parent, handle, config, clique, make);
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
  return remember(shrink(comm, excluded, count, made, config, flags == NCCL_SHRINK_ABORT));
}
