// SPDX-License-Identifier: Apache-2.0
// Running the ranks of a communicator on this machine, as processes or as threads.
#pragma once

#include <functional>

#include "tools/session.h"
#include "tutti/status.h"
#include "tutti/unique_id.h"

namespace tutti::tools {

/// The path of this program; "tutti" if the kernel does not tell it.
std::string own_program();

/// Lets ranks of one process share a GPU, by variables that CUDA reads when it starts. Without the first variable,
/// streams of two ranks may share a hardware queue. Without the second, a kernel is loaded when all running kernels
/// have ended. Before there are further threads.
void prepare_for_shared_gpus();

/// One rank's part. Returns an exit code, or why it failed. Failures are printed when all ranks have ended, each text
/// once with its ranks.
using RankMain = std::function<Result<int>(const UniqueId& id, int rank)>;

/// Runs the ranks of the session: this process alone if a launcher started it, else `threads` or processes.
int run_ranks(const Session& session, bool threads, const RankMain& rank_main);

/// Runs this process as one rank; `id` may be the reason why there is none. Returns an exit code.
int run_as_rank(const Result<UniqueId>& id, int rank, const RankMain& rank_main);

/// One thread per rank. Returns the largest exit code.
int run_as_threads(const Session& session, const RankMain& rank_main);

/// One process per rank, forked from the calling process, which must have no further thread. Returns when all have
/// ended: 0, or the exit code of the first failed process. After a failure, all other processes get a few seconds to
/// notice; then they are ended. If the caller is interrupted (SIGINT, SIGTERM, SIGHUP), it ends them all; they also end
/// when the caller dies.
int run_as_processes(const Session& session, const RankMain& rank_main);

/// The part of rank 0 where rank 0 gets the id by itself: it tells the id, and then goes on as the rank. The other
/// ranks start when it has told the id.
using TellId = std::function<Status(const UniqueId& id)>;
using FirstMain = std::function<Result<int>(const TellId& tell)>;
int run_as_processes(int rank_count, const FirstMain& first, const RankMain& rank_main);

}  // namespace tutti::tools
