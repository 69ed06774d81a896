// SPDX-License-Identifier: Apache-2.0
#include "backend/enqueuing.h"

namespace tutti::backend {

Status Enqueuing::run(const Call& call) {
  return enqueue_calls({&call, 1}, [&] { return launch(call); });
}

Status Enqueuing::run_messages(std::span<const Call> calls) {
  return enqueue_calls(calls, [&] { return launch_messages(calls); });
}

Status Enqueuing::barrier(const Call& call) {
  return enqueue_calls({&call, 1}, [&] { return wait_for_all(call.stream); });
}

Status Enqueuing::gather(std::span<const Stream> streams) {
  return enqueue([&] { return gather_streams(streams); });
}

Status Enqueuing::release(std::span<const Stream> streams) {
  if (streams.size() < 2) return {};
  return enqueue([&] { return release_streams(streams); });
}

/// Reports pending failures of the device first.
template <class Action>
Status Enqueuing::enqueue(Action&& action) {
  TUTTI_TRY(owner_.check_device());
  return owner_.settle(action());
}

template <class Action>
Status Enqueuing::enqueue_calls(std::span<const Call> calls, Action&& action) {
  ledger_.count(calls);
  if (const auto absence = ledger_.attendance.missing_in_any()) return owner_.miss(*absence);
  ledger_.record(calls);  // before the device: the first call of a shape waits for the other ranks there
  const Status done = enqueue(action);
  if (done.ok()) {
    ledger_.history.enter_end(Phase::kEnqueued);
  } else if (!owner_.has_failed()) {
    ledger_.take_back(calls);
  }
  return done;
}

}  // namespace tutti::backend
