// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_assignment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <climits>
#include <string_view>

namespace tutti::launcher {
namespace {

struct Names {
  const char* launcher;
  const char* rank;
  const char* rank_count;
  const char* local_rank;
};

constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Names kOpenMpi{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Names kSlurm{"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"};
constexpr Names kMpich{"MPICH's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"};
constexpr std::array kLaunchers{kTorchrun, kOpenMpi, kSlurm, kMpich};

/// Whether a launcher set these variables. The batch script of Slurm has a rank and no step; RANK alone is a common
/// name of other programs.
bool has_set(const Names& names, const Variables& variables) {
  return variables(names.rank) != nullptr && variables(names.rank_count) != nullptr;
}

Result<int> rank_number(const char* name, const Variables& variables) {
  TUTTI_ASSIGN(const uint32_t number, number_of(variables, name, INT_MAX, "0 or more"));
  return static_cast<int>(number);
}

Result<RankAssignment> read(const Names& names, const Variables& variables) {
  RankAssignment assignment;
  assignment.launcher = names.launcher;
  TUTTI_ASSIGN(assignment.rank, rank_number(names.rank, variables));
  TUTTI_ASSIGN(assignment.rank_count, rank_number(names.rank_count, variables));
  if (assignment.rank >= assignment.rank_count) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}={} is no rank of {}={}; {} sets both", names.rank, assignment.rank, names.rank_count,
                              assignment.rank_count, names.launcher));
  }
  if (variables(names.local_rank) != nullptr) {
    TUTTI_ASSIGN(assignment.local_rank, rank_number(names.local_rank, variables));
    if (assignment.local_rank >= assignment.rank_count) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}={} is no rank on a host of {}={}; {} sets both", names.local_rank,
                                assignment.local_rank, names.rank_count, assignment.rank_count, names.launcher));
    }
  }
  return assignment;
}

/// RANK or WORLD_SIZE alone is a common name of other programs. Beside a further variable of such a job it is half of
/// an assignment, and each process would be a job of its own.
Status refuse_half(const Variables& variables) {
  const bool has_rank = variables(kTorchrun.rank) != nullptr;
  if (has_rank == (variables(kTorchrun.rank_count) != nullptr)) return {};
  for (const char* further : {kTorchrun.local_rank, "MASTER_ADDR", "TUTTI_MEETING"}) {
    if (variables(further) == nullptr) continue;
    return {Code::kInvalidArgument,
            fmt::format("the variables {} and {} are set, but {} is not; set RANK and WORLD_SIZE, or unset both",
                        has_rank ? kTorchrun.rank : kTorchrun.rank_count, further,
                        has_rank ? kTorchrun.rank_count : kTorchrun.rank)};
  }
  return {};
}

Status agree(const RankAssignment& torchrun, const RankAssignment& mpirun) {
  if (torchrun.rank == mpirun.rank && torchrun.rank_count == mpirun.rank_count) return {};
  return {Code::kInvalidArgument,
          fmt::format("{} says rank {} of {} (RANK, WORLD_SIZE), and {} says rank {} of {} (OMPI_COMM_WORLD_RANK, "
                      "OMPI_COMM_WORLD_SIZE); unset the variables of one of them",
                      torchrun.launcher, torchrun.rank, torchrun.rank_count, mpirun.launcher, mpirun.rank,
                      mpirun.rank_count)};
}

}  // namespace

Result<uint32_t> number_of(const Variables& variables, const char* name, uint32_t most, std::string_view range) {
  const char* const set = variables(name);
  const std::string_view text = set == nullptr ? std::string_view() : std::string_view(set);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > most) {
    return Status(Code::kInvalidArgument, fmt::format("the variable {}={} is no number of {}", name, text, range));
  }
  return number;
}

Result<std::optional<RankAssignment>> assignment_of(const Variables& variables) {
  for (const Names& names : kLaunchers) {
    if (!has_set(names, variables)) continue;
    TUTTI_ASSIGN(RankAssignment assignment, read(names, variables));
    if (names.rank == kTorchrun.rank && has_set(kOpenMpi, variables)) {
      TUTTI_ASSIGN(const RankAssignment mpirun, read(kOpenMpi, variables));
      TUTTI_TRY(agree(assignment, mpirun));
    }
    return std::optional(std::move(assignment));
  }
  TUTTI_TRY(refuse_half(variables));
  return std::optional<RankAssignment>();
}

}  // namespace tutti::launcher
