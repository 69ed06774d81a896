// SPDX-License-Identifier: Apache-2.0
#include "backend/factory.h"

#include "backend/cuda/backend.h"

namespace tutti::backend {

Result<std::unique_ptr<Backend>> make_backend(Parts& parts) {
  if (!parts.gpu) {
    return std::unique_ptr<Backend>(
        std::make_unique<HostBackend>(parts.host, parts.owner, parts.ledger, std::move(parts.fabric)));
  }
  parts.gpu->fabric = parts.fabric.get();
  TUTTI_ASSIGN(auto gpu, Gpu::create(*parts.gpu, parts.protocols, parts.bootstrap, parts.deadline));
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(parts.owner, parts.ledger, std::move(parts.fabric), std::move(gpu)));
}

}  // namespace tutti::backend
