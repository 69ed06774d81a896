// SPDX-License-Identifier: Apache-2.0
// The binary layout of NCCL's tuner plugins. A plugin exports one table of functions per version of the interface, as
// the data symbol ncclTunerPlugin_v<version>. Every table begins with the four entries of Table.
//
//   version  since NCCL  difference to the version before
//   2        2.21        init makes a context; the plugin names one algorithm and one protocol
//   3        2.23        a table of costs instead
//   4        2.24        the plugin is told whether buffers are registered
//   5        2.28        init gets the communicator, the NVLink domains, and constants of NCCL's model
//   6        2.30        getChunkSize
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nccl_plugins/network_tables.h"

namespace tutti::tuner_nccl {

inline constexpr int kNewestVersion = 6;
inline constexpr int kOldestVersion = 2;

using nccl_plugins::Logger;

/// Groups of ranks that NVLink joins.
struct NvlinkDomains {
  int count;
  int fewest_ranks;
  int most_ranks;
};

/// The constants of NCCL's model of times: latencies in µs, bandwidths in GB/s. A plugin may change them.
using Constants = std::array<double, 144>;

using Entry = void();

/// The entries have the type of their version, as below. Version 6 has a fifth entry, getChunkSize.
struct Table {
  const char* name;
  Entry* init;
  Entry* choose;  ///< getCollInfo
  int (*end)(void* context);
};

using Init2 = int(size_t ranks, size_t machines, Logger* logger, void** context);
using Init5 = int(void** context, uint64_t communicator, size_t ranks, size_t machines, Logger* logger,
                  NvlinkDomains* domains, Constants* constants);
using Choose2 = int(void* context, int function, size_t bytes, int collnet, int nvls, int operations, int* algorithm,
                    int* protocol, int* channels);
/// `costs` is declared as an array of rows. It points to the first cell of a contiguous table.
using Choose3 = int(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                    int protocols, int* channels);
using Choose4 = int(void* context, int function, size_t bytes, int operations, float** costs, int algorithms,
                    int protocols, int registered, int* channels);

}  // namespace tutti::tuner_nccl
