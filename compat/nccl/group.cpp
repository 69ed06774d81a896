// SPDX-License-Identifier: Apache-2.0
#include "nccl/group.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/runtime.h"
#include "nccl/api.h"
#include "nccl/errors.h"

namespace tutti::nccl {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t mistake = ncclSuccess;
  std::vector<PendingInit> pending;
  std::vector<WindowRequest> windows;
  std::vector<Operation> operations;
};

thread_local Group group;

Status call(const Operation& o) {
  Communicator& comm = *o.comm->communicator;
  switch (o.collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(o.input, o.output, o.count, o.type, o.reduction.reduction, o.stream);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(o.input, o.output, o.count, o.type, o.reduction.reduction, o.stream);
    case Collective::kAllGather:
      return comm.all_gather(o.input, o.output, o.count, o.type, o.stream);
    case Collective::kBroadcast:
      return comm.broadcast(o.input, o.output, o.count, o.type, o.root, o.stream);
    case Collective::kReduce:
      return comm.reduce(o.input, o.output, o.count, o.type, o.reduction.reduction, o.root, o.stream);
    case Collective::kAllToAll:
      return comm.all_to_all(o.input, o.output, o.count, o.type, o.stream);
    case Collective::kGather:
      return comm.gather(o.input, o.output, o.count, o.type, o.root, o.stream);
    case Collective::kScatter:
      return comm.scatter(o.input, o.output, o.count, o.type, o.root, o.stream);
    case Collective::kSendRecv:
      return o.receives ? comm.recv(o.output, o.count, o.type, o.root, o.stream)
                        : comm.send(o.input, o.count, o.type, o.root, o.stream);
  }
  return Status(Code::kInternal, "a collective without a call");
}

/// A scalar in the GPU's memory is read when its turn comes on the stream: kernels here take the value, not the
/// address.
Status read_scalar(Operation& operation) {
  if (operation.reduction.scalar == nullptr) return {};
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TUTTI_CUDA_TRY(cudaStreamIsCapturing(operation.stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) {
    return {Code::kUnsupported,
            "a scalar in the GPU's memory cannot be read into a graph; pass it from the host's (HostImmediate)"};
  }
  uint64_t& bits = operation.reduction.reduction.scalar;
  TUTTI_CUDA_TRY(
      cudaMemcpyAsync(&bits, operation.reduction.scalar, size_of(operation.type), cudaMemcpyDefault, operation.stream));
  TUTTI_CUDA_TRY(cudaStreamSynchronize(operation.stream));
  return {};
}

Status aborted() {
  return {Code::kAborted, "the communicator was aborted meanwhile"};
}

Status enqueue(const std::vector<Operation>& operations) {
  TUTTI_TRY(group_start());
  Status status;
  for (const Operation& operation : operations) {
    status = call(operation);
    if (!status.ok()) break;
  }
  const Status ended = group_end();
  return status.ok() ? ended : status;
}

Status run(std::vector<Operation>& operations) {
  std::map<const ncclComm*, Visit> visits;
  for (Operation& operation : operations) {
    // A group may have begun before a fork, and end in the child.
    if (is_of_parent(operation.comm)) return operation.comm->origin.refusal("the communicator");
    if (!visits.try_emplace(operation.comm, *operation.comm).first->second) return aborted();
    const cuda::DeviceScope scope(operation.comm->device);
    TUTTI_TRY(read_scalar(operation));
  }
  return operations.empty() ? Status() : enqueue(operations);
}

Status run(Operation operation) {
  ncclComm& comm = *operation.comm;
  const Visit visit(comm);
  if (!visit) return aborted();
  const cuda::DeviceScope scope(comm.device);
  TUTTI_TRY(read_scalar(operation));
  return call(operation);
}

ncclResult_t run(const PendingInit& init) {
  ncclComm& comm = *init.comm;
  const cuda::DeviceScope scope(comm.device);
  const ncclResult_t result = report(init.make());
  comm.state.store(result, std::memory_order_release);
  auto phase = ncclComm::Phase::kBegun;
  const bool abandoned = !comm.phase.compare_exchange_strong(phase, ncclComm::Phase::kDone);
  if (abandoned && comm.communicator) comm.communicator->abort("ncclCommAbort");
  if (abandoned || init.handle == nullptr) destroy(&comm, abandoned);
  return result;
}

void give_up(const PendingInit& init) {
  if (init.handle != nullptr) *init.handle = nullptr;
  if (init.comm->magic == ncclComm::kAlive && !is_of_parent(init.comm)) destroy(init.comm);
}

/// Groups pending inits by parent: inits with the same parent run in order, because they use its connections. All other
/// inits run by themselves.
std::vector<std::vector<PendingInit>> series_of(std::vector<PendingInit> pending) {
  std::vector<std::vector<PendingInit>> all_series;
  for (PendingInit& init : pending) {
    auto series = all_series.end();
    if (init.parent != nullptr) {
      series = std::find_if(all_series.begin(), all_series.end(),
                            [&](const auto& other) { return other.front().parent == init.parent; });
    }
    if (series == all_series.end()) series = all_series.insert(series, std::vector<PendingInit>());
    series->push_back(std::move(init));
  }
  return all_series;
}

/// Each series in a thread. The results come from the communicators' states.
void begin(const std::vector<PendingInit>& pending) {
  for (std::vector<PendingInit>& series : series_of(pending)) {
    std::vector<ncclComm*> comms(series.size());
    std::transform(series.begin(), series.end(), comms.begin(), [](const PendingInit& init) { return init.comm; });
    ncclComm* const parent = series.front().parent;
    const std::shared_future<void> before = parent != nullptr ? parent->parting : std::shared_future<void>();
    std::packaged_task<void()> task([before, work = std::move(series)] {
      if (before.valid()) before.wait();
      for (const PendingInit& init : work) run(init);
    });
    const std::shared_future<void> future = task.get_future().share();
    for (ncclComm* comm : comms) comm->init = future;
    if (parent != nullptr) parent->parting = future;
    std::thread(std::move(task)).detach();
  }
}

/// Blocking: one alone in this thread, more at the same time, since they wait for each other. The first failure.
ncclResult_t finish(const std::vector<PendingInit>& pending) {
  if (pending.size() == 1) {
    const ncclComm* const parent = pending.front().parent;
    if (parent != nullptr && parent->parting.valid()) parent->parting.wait();
    return run(pending.front());
  }
  begin(pending);
  ncclResult_t first = ncclSuccess;
  for (const PendingInit& init : pending) {
    init.comm->init.wait();
    if (first == ncclSuccess) first = init.comm->state.load();
  }
  return first;
}

ncclResult_t make_all(const std::vector<PendingInit>& pending) {
  if (pending.empty()) return ncclSuccess;
  if (!pending.front().comm->blocking) {
    begin(pending);
    return ncclInProgress;
  }
  const ncclResult_t first = finish(pending);
  if (first != ncclSuccess) std::for_each(pending.begin(), pending.end(), give_up);
  return first;
}

/// Whether the communicators of a group are blocking: all or none may be.
bool mixed(const Group& all) {
  std::vector<bool> kinds;
  for (const PendingInit& init : all.pending) kinds.push_back(init.comm->blocking);
  for (const WindowRequest& window : all.windows) kinds.push_back(window.comm->blocking);
  for (const Operation& operation : all.operations) kinds.push_back(operation.comm->blocking);
  return std::adjacent_find(kinds.begin(), kinds.end(), std::not_equal_to<>()) != kinds.end();
}

/// Ends one level. At the outermost level, `out` gets the collected calls, and the result is the mistake that spoils
/// the group.
ncclResult_t close(const char* name, Group& out) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "{}: there is no GroupStart before it in this thread", name);
  if (--group.depth > 0) return ncclSuccess;
  out = std::exchange(group, Group());
  if (out.mistake == ncclSuccess && mixed(out)) {
    out.mistake = fail(ncclInvalidArgument, "{}: communicators that block and others that do not, in one group", name);
  }
  if (out.mistake != ncclSuccess) std::for_each(out.pending.begin(), out.pending.end(), give_up);
  return out.mistake;
}

/// The sum of the predicted times of all operations.
ncclResult_t estimate(const std::vector<Operation>& operations, float& microseconds) {
  double sum = 0;
  for (const Operation& o : operations) {
    const Visit visit(*o.comm);
    if (!visit) return report(aborted());
    const auto choice = o.comm->communicator->choose(o.collective, o.count, o.type, o.reduction.reduction.op);
    TUTTI_NCCL_TRY(report(choice.status()));
    sum += choice->predicted_us;
  }
  microseconds = static_cast<float>(sum);
  return ncclSuccess;
}

}  // namespace

ncclResult_t remember(ncclResult_t result) {
  const bool mistake = result != ncclSuccess && result != ncclInProgress;
  if (mistake && group.depth > 0 && group.mistake == ncclSuccess) group.mistake = result;
  return result;
}

ncclResult_t submit(const Operation& operation) {
  if (group.depth > 0) {
    group.operations.push_back(operation);
    return ncclSuccess;
  }
  TUTTI_NCCL_TRY(check_own_messages({&operation, 1}));
  return report(run(operation));
}

ncclResult_t submit(PendingInit init) {
  init.comm->state.store(ncclInProgress);
  if (init.handle != nullptr) *init.handle = init.comm;
  join_clique(*init.comm);
  if (group.depth > 0) {
    group.pending.push_back(std::move(init));
    return ncclSuccess;
  }
  return make_all({std::move(init)});
}

ncclResult_t submit(const WindowRequest& request) {
  if (group.depth == 0) return report(register_windows({request}));
  group.windows.push_back(request);
  return ncclSuccess;
}

ncclResult_t start_group() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  Group all;
  TUTTI_NCCL_TRY(close("GroupEnd", all));
  const ncclResult_t made = make_all(all.pending);
  if (made != ncclSuccess && made != ncclInProgress) return made;
  TUTTI_NCCL_TRY(report(register_windows(all.windows)));
  TUTTI_NCCL_TRY(check_own_messages(all.operations));
  TUTTI_NCCL_TRY(report(run(all.operations)));
  return made;
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

TUTTI_NCCL(ncclResult_t, ncclGroupStart, (void)) {
  return start_group();
}

TUTTI_NCCL(ncclResult_t, ncclGroupEnd, (void)) {
  return end_group();
}

TUTTI_NCCL(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  if (info == nullptr || info->magic != 0x74685283) {
    return remember(fail(ncclInvalidArgument, "GroupSimulateEnd: begin with NCCL_SIM_INFO_INITIALIZER"));
  }
  Group all;
  TUTTI_NCCL_TRY(close("GroupSimulateEnd", all));
  const ncclResult_t made = make_all(all.pending);
  if (made != ncclSuccess && made != ncclInProgress) return made;
  return all.operations.empty() ? made : estimate(all.operations, info->estimatedTime);
}
