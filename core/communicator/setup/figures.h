// SPDX-License-Identifier: Apache-2.0
// Figures of the α–β model for links of which neither a device nor a topology states more. A job and a dry run use the
// same figures, so that a dry run predicts the job. Units: µs, and GB/s (1e9 bytes).
#pragma once

#include <cstdint>

namespace tutti::communicator {

// Shared memory and TCP on an ordinary host.
inline constexpr double kShmBandwidthGbs = 8;
inline constexpr double kShmLatencyUs = 0.15;
inline constexpr double kNetBandwidthGbs = 1;
inline constexpr double kNetLatencyUs = 15;
inline constexpr double kNetGapUs = 1;  // from a message of a rank to its next: a system call of the thread that sends

// Between H200s over NVLink: the time of one flag in one direction, and of each further message (docs/results.md).
inline constexpr double kGpuLatencyUs = 0.9;
inline constexpr double kGpuGapUs = 0.05;
inline constexpr double kStagedLatencyUs = 2;  // through memory of the host: a store and a poll over PCI
inline constexpr double kGpuMemoryGbs = 3000;

/// Channels where the configuration leaves them open. On the host a channel is a thread's work, and more than one pays
/// only if asked for.
inline constexpr uint32_t kHostChannels = 1;
/// The same of GPUs: one thread block each.
inline constexpr uint32_t kGpuChannels = 64;
/// The same over a network. Each has connections of its own, which one thread of the host serves.
inline constexpr uint32_t kGpuNetChannels = 4;

}  // namespace tutti::communicator
