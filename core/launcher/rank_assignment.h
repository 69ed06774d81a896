// SPDX-License-Identifier: Apache-2.0
// The rank that a launcher assigns to a process, as the variables of the launcher state it.
//
//   launcher             rank                  ranks                    rank on the host
//   torchrun, Kubernetes RANK                  WORLD_SIZE               LOCAL_RANK
//   Open MPI's mpirun    OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE     OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm's srun         SLURM_PROCID          SLURM_STEP_NUM_TASKS     SLURM_LOCALID
//   MPICH's mpiexec      PMI_RANK              PMI_SIZE                 MPI_LOCALRANKID
//
// An inner launcher hides an outer launcher: the order of the table decides, with one exception. Variables of torchrun
// and of mpirun that differ are an error, because neither starts the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/status.h"

namespace tutti::launcher {

/// Gives the text of a variable, or null: std::getenv(), or a table of tests.
using Variables = std::function<const char*(const char*)>;

struct RankAssignment {
  std::string launcher;  ///< "Open MPI's mpirun"
  int rank = 0;
  int rank_count = 1;
  int local_rank = -1;  ///< among the ranks of this host; -1: not stated
};

/// Nothing: no launcher started this process. kInvalidArgument, with the variables: a variable is missing or no number,
/// the rank or the rank on the host is not below the number of ranks, or two launchers contradict each other.
Result<std::optional<RankAssignment>> assignment_of(const Variables& variables);

/// The number 0..most that a variable holds. kInvalidArgument: "the variable NAME=TEXT is no number of RANGE", also for
/// a variable that is not set.
Result<uint32_t> number_of(const Variables& variables, const char* name, uint32_t most, std::string_view range);

}  // namespace tutti::launcher
