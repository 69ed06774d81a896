// SPDX-License-Identifier: Apache-2.0
// The replacement for gpu.cpp in builds without CUDA.
#include "backend/cuda/gpu.h"

namespace tutti::backend {

Result<std::unique_ptr<Gpu>> Gpu::create(const Options&, const std::vector<tuner::Protocol>&, bootstrap::Bootstrap&,
                                         base::Time) {
  return Status(Code::kUnsupported,
                "device is set to 'cuda', but this build of Tutti has no CUDA; use one made with "
                "TUTTI_CUDA=ON, or set device to host");
}

Result<std::string> Gpu::current_address() {
  return std::string();
}

}  // namespace tutti::backend
