// SPDX-License-Identifier: Apache-2.0
// Ranks on several machines without a launcher: ssh starts a process on its host for each rank.
//
// The connection of ssh carries the variables TUTTI_* and the id, so no secret stands on a command line. Rank 0 makes
// the id on its host, and sends it to the caller. A rank ends when its connection of ssh ends.
#pragma once

#include <string>
#include <vector>

#include "tools/session.h"
#include "tutti/status.h"
#include "tutti/unique_id.h"

namespace tutti::tools {

/// The host of each rank: a line "HOST [slots=N]" stands for N ranks, 1 without `slots`. "#" begins a comment. Errors:
/// kNotFound, kConfig (file and line).
Result<std::vector<std::string>> read_hostfile(const std::string& file);

struct SshJob {
  std::vector<std::string> hosts;              ///< of each rank
  std::vector<std::string> program = {"ssh"};  ///< with its options
  std::vector<std::string> arguments;          ///< of `tutti`, for all ranks
  std::string rank_option;                     ///< the option that states the rank
};

/// Runs the job from this host, with this program and in this folder on each host. Returns when all ranks have ended:
/// 0, or the exit code of the first failed rank, as run_as_processes(). Standard output is that of rank 0.
int run_by_ssh(const SshJob& job);

/// Takes the variables and the id from standard input, on a rank of run_by_ssh(). Rank 0 makes the id. From then on,
/// the process ends when standard input ends. Errors: kFailedPrecondition (standard input brings no id), and the errors
/// of make_id(). The process has no further thread.
Result<UniqueId> join_by_ssh(const Session& session, int rank);

}  // namespace tutti::tools
