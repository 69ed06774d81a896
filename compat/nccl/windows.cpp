// SPDX-License-Identifier: Apache-2.0
#include "nccl/windows.h"

#include <map>
#include <thread>

#include "device/cuda/runtime.h"
#include "log/log.h"

namespace tutti::nccl {
namespace {

/// Different sizes, or a buffer that overlaps a registered buffer: NCCL would accept both.
bool is_refusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kFailedPrecondition;
}

Status register_window(const WindowRequest& request) {
  ncclComm& comm = *request.comm;
  const Visit visit(comm);
  if (!visit) return {Code::kAborted, "the communicator was aborted meanwhile"};
  const cuda::DeviceScope scope(comm.device);
  auto registered = comm.communicator->register_buffer(request.buffer, request.size);
  if (registered.ok()) {
    if (registered->direct()) comm.windows.push_back(*std::move(registered));
    return {};
  }
  if (!is_refusal(registered.status())) return registered.status();
  log::info("CommWindowRegister makes no difference: {}", registered.status().text());
  return {};
}

Status register_all(const std::vector<WindowRequest>& requests) {
  for (const WindowRequest& request : requests) TUTTI_TRY(register_window(request));
  return {};
}

}  // namespace

Status register_windows(const std::vector<WindowRequest>& requests) {
  std::map<ncclComm*, std::vector<WindowRequest>> by_comm;
  for (const WindowRequest& request : requests) by_comm[request.comm].push_back(request);
  if (by_comm.size() < 2) return register_all(requests);
  std::map<ncclComm*, Status> statuses;
  std::vector<std::thread> threads;
  threads.reserve(by_comm.size());
  for (const auto& [comm, own] : by_comm) {
    threads.emplace_back([&status = statuses[comm], &own = own] { status = register_all(own); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [comm, status] : statuses) TUTTI_TRY(status);
  return {};
}

void end_window(ncclComm& comm) {
  const Visit visit(comm);
  if (!visit || ++comm.ended_windows < comm.windows.size()) return;
  const cuda::DeviceScope scope(comm.device);
  comm.windows.clear();
  comm.ended_windows = 0;
}

}  // namespace tutti::nccl
