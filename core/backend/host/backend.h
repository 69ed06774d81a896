// SPDX-License-Identifier: Apache-2.0
// The host back end: the thread of a call runs its works, over shared memory and the network.
#pragma once

#include "backend/backend.h"
#include "backend/host/driver.h"
#include "backend/host/execution.h"
#include "backend/host/fabric.h"
#include "backend/host/programs.h"
#include "backend/host/verdicts.h"
#include "backend/owner.h"

namespace tutti::backend {

class HostBackend final : public Backend {
 public:
  struct Options {
    Executions::Options calls;
    Driver::Options waits;  ///< `bell` is that of the fabric
  };
  HostBackend(const Options& options, Owner& owner, Ledger& ledger, std::unique_ptr<Fabric> fabric);

  Status serve(const tuner::Selector& selector, const Plans& plans) override;

  Status run(const Call& call) override;
  Status run_messages(std::span<const Call> calls) override;
  Status barrier(const Call& call) override { return run(call); }
  Status gather(std::span<const Stream>) override { return {}; }
  Status release(std::span<const Stream>) override { return {}; }
  Result<std::optional<uint64_t>> register_buffer(void*, uint64_t, base::Time) override {
    return std::optional<uint64_t>();
  }
  void end_registration(uint64_t) override {}

  void stop() override { fabric_->ring(); }
  /// A call that waits finds the absence itself.
  std::optional<Absence> on_departure() override;
  Status fault() const override { return {}; }
  void observe() override {}  // the driver shows its waits
  bool flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed) override {
    return fabric_->flush(limit, failed);
  }
  std::string connections(std::optional<uint32_t> peer) const override { return fabric_->describe(peer); }

 private:
  Status copy_to_self(std::span<const Call> calls) const;
  Result<std::vector<Execution>> prepare_messages(std::span<const Call> calls);
  std::vector<Job> number_messages(std::span<const Call> calls, std::vector<Execution>& messages);
  Status run_jobs(std::span<Job> jobs, const Call& call);
  Status check_present(std::span<const Job> jobs, const Call& call);
  void uncount(std::span<const Job> jobs);

  const Options options_;
  Owner& owner_;
  Ledger& ledger_;
  std::unique_ptr<Fabric> fabric_;  // the members below use its connections
  Driver driver_;
  Verdicts verdicts_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Executions> executions_;
  uint64_t calls_ = 0;  // groups of messages included, of which other ranks make other numbers
};

}  // namespace tutti::backend
