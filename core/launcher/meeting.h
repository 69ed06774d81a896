// SPDX-License-Identifier: Apache-2.0
// The id at which the ranks of a launched job meet.
//
// A launcher that speaks PMIx (Open MPI's mpirun, srun --mpi=pmix) carries the id: rank 0 makes it, with a random
// secret, and the ranks get it over the connections of the launcher. Else the job meets at an address that all ranks
// know from their variables, and the secret is TUTTI_ID_SECRET_FILE or TUTTI_ID_SECRET.
//
//   TUTTI_MEETING=HOST:PORT      comes before every other address
//   MASTER_ADDR, MASTER_PORT     of torchrun and Kubernetes; Tutti uses MASTER_PORT + 1, next to PyTorch's store
//   SLURM_STEP_NODELIST          the first host, at a port that the numbers of job and step give
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"
#include "launcher/rank_assignment.h"
#include "tutti/status.h"
#include "tutti/unique_id.h"

namespace tutti::launcher {

/// The id of the job's ranks; equal on all ranks. Collective: rank 0 makes the id and serves it. Follows
/// bootstrap.interface and timeouts.bootstrap of the configuration. Errors: kInvalidArgument (variables), kUnsupported
/// (the launcher states no meeting place), kTimeout, kSystem. Threads: one at a time.
Result<UniqueId> meet(const RankAssignment& assignment, const Variables& variables, const config::Config& config);

/// "host:port" that the variables state; kUnsupported: they state none. For meet() without PMIx.
Result<std::string> meeting_address(const RankAssignment& assignment, const Variables& variables);

/// The first host of Slurm's list: "node[003-010,12],login" gives "node003".
std::string first_host(std::string_view list);

/// The secret of an id at an address that is known beforehand: TUTTI_ID_SECRET_FILE names its file, or TUTTI_ID_SECRET
/// is it. kInvalidArgument, with the variable: no 32 hexadecimal digits, or both with different secrets. Without both,
/// all digits are 0, and a warning says so once; `address_of` names the source of the address.
Result<std::string> secret_of_environment(std::string_view address_of);

}  // namespace tutti::launcher
