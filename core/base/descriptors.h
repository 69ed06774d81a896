// SPDX-License-Identifier: Apache-2.0
// The descriptors of this process: their table, and errors for want of a descriptor.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string_view>

#include "tutti/status.h"

namespace tutti::base {

/// Entries for which widen_descriptor_table() makes room at least, unless the limit (`ulimit -n`) is lower.
inline constexpr size_t kLeastDescriptorRoom = 4096;

/// Makes room for twice as many descriptors as are open, and for kLeastDescriptorRoom at least. Linux doubles the table
/// when it is full. In a process with several threads, the thread that needs the new entry sleeps meanwhile
/// (synchronize_rcu): up to hundreds of ms on a loaded machine. So this function is called where a thread may sleep,
/// before others open descriptors where they may not. Beyond the limit it makes no room. Any thread.
void widen_descriptor_table();

/// system_error(), with the remedy if the process is out of descriptors. `what`: "cannot make a socket".
Status descriptor_error(std::string_view what, int error = errno);

}  // namespace tutti::base
