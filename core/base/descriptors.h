// SPDX-License-Identifier: Apache-2.0
// The table of the descriptors of this process.
#pragma once

#include <cstddef>

namespace tutti::base {

/// Entries for which widen_descriptor_table() makes room at least, unless the limit (`ulimit -n`) is lower.
inline constexpr size_t kLeastDescriptorRoom = 4096;

/// Makes room for twice as many descriptors as are open, and for kLeastDescriptorRoom at least. Linux doubles the table
/// when it is full. In a process with several threads, the thread that needs the new entry sleeps meanwhile
/// (synchronize_rcu): up to hundreds of ms on a loaded machine. So this function is called where a thread may sleep,
/// before others open descriptors where they may not. Beyond the limit it makes no room. Any thread.
void widen_descriptor_table();

}  // namespace tutti::base
