// SPDX-License-Identifier: Apache-2.0
// The kernels of protocol "copy", by their purpose. Each takes a tutti_cuda_launch.
#pragma once

#include <cstdint>

namespace tutti::copy_kernels {

/// Threads of kMeet and kPart: one block.
inline constexpr uint32_t kWarp = 32;
/// Threads of the kernels that copy.
inline constexpr uint32_t kThreads = 512;

extern const void* const kMeet;       ///< before the copies
extern const void* const kPart;       ///< after them
extern const void* const kKeepBytes;  ///< the own block, in elements of 1, 4 or 8 bytes
extern const void* const kKeepWords;
extern const void* const kKeepLongs;

}  // namespace tutti::copy_kernels
