// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/backend.h"

namespace tutti::backend {
namespace {

Device device_of(const Gpu& gpu) {
  return {gpu.device(), gpu.name(), gpu.link(), gpu.addresses(), gpu.strand_ctas()};
}

}  // namespace

CudaBackend::CudaBackend(Owner& owner, Ledger& ledger, std::unique_ptr<Fabric> fabric, std::unique_ptr<Gpu> gpu)
    : Enqueuing(device_of(*gpu), owner, ledger), fabric_(std::move(fabric)), gpu_(std::move(gpu)) {}

void CudaBackend::stop() {
  gpu_->stop();
  fabric_->ring();
}

std::optional<Absence> CudaBackend::on_departure() {
  fabric_->ring();
  return Enqueuing::on_departure();
}

/// Kernels store words during long waits, which this function shows the other ranks.
void CudaBackend::observe() {
  const auto wait = waits_.observe(gpu_->kernel_waits(), KernelWaits::Clock::now());
  if (!wait) return ledger().waiting.end();
  const auto shown = ledger().waiting.now();
  if (shown && shown->since == wait->since) return;
  ledger().waiting.begin(wait->since, {Turn::Kind::kCollective, 0, ledger().attendance.collectives()}, wait->peer);
}

bool CudaBackend::flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed) {
  static_cast<void>(gpu_->finish());
  // Nothing may follow the last messages of connections, which flush() sends.
  return fabric_->drain(limit, failed) && fabric_->flush(limit, failed);
}

}  // namespace tutti::backend
