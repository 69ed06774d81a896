// SPDX-License-Identifier: Apache-2.0
// The log of NCCL. Lines of this plugin, of Tutti's core and of the network plugin beneath go there. Any thread.
#pragma once

#include <string>

#include "nccl_plugins/network_tables.h"
#include "tutti/status.h"

namespace tutti::nccl_net {

using nccl_plugins::Logger;

/// The function that NCCL gave to init. Null: lines go to stderr, as Tutti's lines do.
void set_logger(Logger* logger);
/// From now on, lines of Tutti's log go to NCCL's log, as warnings, infos and traces.
void take_over_log();

/// Writes "NET/Tutti : <text>" as a warning.
void warn(const std::string& text);
/// Writes "NET/Tutti : <text>" for NCCL_DEBUG=INFO.
void info(const std::string& text);
/// A warning of an exception. Allocates nothing.
void warn_of_exception(const char* entry, const char* what) noexcept;

/// NCCL's result for the code of a failure. A connection that timed out counts as lost.
int result_of(Code code);

}  // namespace tutti::nccl_net
