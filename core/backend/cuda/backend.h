// SPDX-License-Identifier: Apache-2.0
// The CUDA back end: the GPU of a rank, and the connections of the host that carry its data to other hosts.
#pragma once

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernel_waits.h"
#include "backend/enqueuing.h"
#include "backend/host/fabric.h"

namespace tutti::backend {

class CudaBackend final : public Enqueuing {
 public:
  CudaBackend(Owner& owner, Ledger& ledger, std::unique_ptr<Fabric> fabric, std::unique_ptr<Gpu> gpu);

  Result<Stream> common_stream(Stream stream) override { return gpu_->common_stream(stream); }
  Status set_detours(std::span<const Detour> detours) override { return gpu_->set_detours(detours); }
  Status serve(const tuner::Selector& selector, const Plans& plans) override { return gpu_->serve(selector, plans); }
  Result<std::optional<uint64_t>> register_buffer(void* buffer, uint64_t bytes, base::Time deadline) override {
    return gpu_->register_buffer(buffer, bytes, deadline);
  }
  void end_registration(uint64_t number) override { gpu_->end_registration(number); }

  void stop() override;
  std::optional<Absence> on_departure() override;
  Status fault() const override { return gpu_->fault(); }
  void observe() override;
  bool flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed) override;
  std::string connections(std::optional<uint32_t> peer) const override { return fabric_->describe(peer); }

 protected:
  Status launch(const Call& call) override { return gpu_->run(call); }
  Status launch_messages(std::span<const Call> calls) override { return gpu_->run_messages(calls); }
  Status wait_for_all(Stream stream) override { return gpu_->barrier(stream); }
  Status gather_streams(std::span<const Stream> streams) override { return gpu_->gather(streams); }
  Status release_streams(std::span<const Stream> streams) override { return gpu_->release(streams); }

 private:
  std::unique_ptr<Fabric> fabric_;
  KernelWaits waits_;         ///< used by the thread that observes
  std::unique_ptr<Gpu> gpu_;  ///< declared after the fabric, whose network it uses; its end waits for the other ranks
};

}  // namespace tutti::backend
