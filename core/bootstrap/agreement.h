// SPDX-License-Identifier: Apache-2.0
// All ranks agree on plugins and configuration, or learn their differences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace tutti::bootstrap {

/// The facts that must be equal on all ranks. The order of the lines does not matter.
struct Identity {
  std::string version;               ///< version of the library
  std::vector<std::string> plugins;  ///< "network.socket 0.1.0 0.1": kind.name, version, ABI
  std::vector<std::string> config;   ///< "shm.slots=8"
  /// Decisions that each rank has worked out for itself: "all_reduce of blocks of 2048 bytes=ring × simple ×4".
  std::vector<std::string> decisions = {};
  std::vector<std::string> plan_files = {};  ///< "plans/mine.yaml=5f0c...": name and digest
};

/// Collective. On any difference every rank gets the same kMismatch, with the ranks of each value:
/// "ranks disagree: config key 'shm.slots' is 8 on ranks 0-2,4-7 and 16 on rank 3; plugin network.socket is 0.1.0
/// (ABI 0.1) on ranks 0-3 and missing on ranks 4-7".
Status agree(Bootstrap& bootstrap, const Identity& mine, base::Time deadline);

/// FNV-1a (Fowler, Noll, Vo), 64 bits: the same in every build.
uint64_t hash(std::span<const std::byte> bytes);

/// The text of the difference between identities by rank; empty when there is none.
std::string difference_of(const std::vector<Identity>& identities);

}  // namespace tutti::bootstrap
