// SPDX-License-Identifier: Apache-2.0
// The parts that setup has made for a back end.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/gpu.h"
#include "backend/host/backend.h"
#include "backend/owner.h"
#include "bootstrap/bootstrap.h"

namespace tutti::backend {

struct Parts {
  Owner& owner;
  Ledger& ledger;
  HostBackend::Options host;
  std::optional<Gpu::Options> gpu;  ///< set: a GPU computes; its `fabric` is that below
  /// A back end that is made takes the fabric, and keeps it for as long as it lives: setup uses the network.
  std::unique_ptr<Fabric>& fabric;
  const std::vector<tuner::Protocol>& protocols;
  bootstrap::Bootstrap& bootstrap;
  base::Time deadline;
};

}  // namespace tutti::backend
