// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/strand_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "plugin/loader.h"

namespace tutti::backend {
namespace {

/// The room on the GPU of this rank.
Result<uint32_t> strand_ctas(const tuner::Protocol& protocol) {
  const bool runs_strands = protocol.properties.strands != 0 && (protocol.properties.devices & TUTTI_DEVICE_CUDA) != 0;
  uint32_t ctas = 0;
  if (!runs_strands || protocol.ops->strand_ctas == nullptr) return ctas;
  if (const int32_t code = protocol.ops->strand_ctas(protocol.plugin, &ctas); code != TUTTI_OK) {
    return Status(static_cast<Code>(code),
                  fmt::format("kernels of protocol '{}' for strands: {}", protocol.name, plugin::take_reason()));
  }
  return ctas;
}

}  // namespace

Result<std::vector<uint32_t>> agree_on_strand_ctas(const std::vector<tuner::Protocol>& protocols,
                                                   uint32_t ranks_per_gpu, uint32_t most_ctas,
                                                   bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  std::vector<uint32_t> own;
  for (const tuner::Protocol& protocol : protocols) {
    TUTTI_ASSIGN(const uint32_t ctas, strand_ctas(protocol));
    own.push_back(std::min(ctas / ranks_per_gpu, most_ctas));
  }
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(own)), deadline));
  for (const std::span<const std::byte> bytes : all) {
    std::vector<uint32_t> theirs(own.size());  // all ranks have the same protocols
    std::memcpy(theirs.data(), bytes.data(), std::min(bytes.size(), theirs.size() * sizeof theirs.front()));
    for (size_t p = 0; p < own.size(); ++p) own[p] = std::min(own[p], theirs[p]);
  }
  return own;
}

}  // namespace tutti::backend
