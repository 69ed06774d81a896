// SPDX-License-Identifier: Apache-2.0
// The common part of back ends whose calls return before they have ended.
#pragma once

#include "backend/backend.h"
#include "backend/owner.h"

namespace tutti::backend {

/// Counts a call before it enqueues it: a rank that leaves meanwhile, while the call is prepared or the device waits,
/// is found by on_departure().
class Enqueuing : public Backend {
 public:
  Status run(const Call& call) final;
  Status run_messages(std::span<const Call> calls) final;
  Status barrier(const Call& call) final;
  Status gather(std::span<const Stream> streams) final;
  Status release(std::span<const Stream> streams) final;
  std::optional<Absence> on_departure() override { return ledger_.attendance.missing_in_any(); }

 protected:
  Enqueuing(Device device, Owner& owner, Ledger& ledger)
      : Backend(std::move(device), Phase::kEnqueued), owner_(owner), ledger_(ledger) {}

  /// Enqueue on the stream of the first call, after all earlier calls, on any stream.
  virtual Status launch(const Call& call) = 0;
  virtual Status launch_messages(std::span<const Call> calls) = 0;
  /// Enqueues a barrier and waits for its end.
  virtual Status wait_for_all(Stream stream) = 0;
  /// stream_order.h
  virtual Status gather_streams(std::span<const Stream> streams) = 0;
  virtual Status release_streams(std::span<const Stream> streams) = 0;

  Ledger& ledger() { return ledger_; }

 private:
  template <class Action>
  Status enqueue(Action&& action);
  template <class Action>
  Status enqueue_calls(std::span<const Call> calls, Action&& action);

  Owner& owner_;
  Ledger& ledger_;
};

}  // namespace tutti::backend
