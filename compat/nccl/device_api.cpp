// SPDX-License-Identifier: Apache-2.0
// The host side of the device API. Kernels of applications cannot communicate through Tutti. Calls that would prepare
// communication are refused, and calls that only count ranks are answered.
#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/errors.h"
#include "nccl/group.h"

extern "C" {
struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};
// Only addresses of these types are passed.
struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclLLA2AHandle;
}
static_assert(sizeof(ncclTeam) == 12);

namespace {

using tutti::nccl::fail;

ncclResult_t refuse(const char* call) {
  return fail(ncclInvalidUsage, "{}: Tutti has no device API: kernels of applications cannot communicate through it",
              call);
}

}  // namespace

TUTTI_NCCL(ncclResult_t, ncclDevCommCreate, (ncclComm_t comm, const ncclDevCommRequirements*, ncclDevComm*)) {
  TUTTI_NCCL_TRY(tutti::nccl::check_handle(comm, "DevCommCreate"));
  return tutti::nccl::remember(refuse("DevCommCreate"));
}

TUTTI_NCCL(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm*)) {
  TUTTI_NCCL_TRY(tutti::nccl::check_handle(comm, "DevCommDestroy"));
  return ncclSuccess;  // there never was one
}

TUTTI_NCCL(ncclResult_t, ncclLsaBarrierCreateRequirement,
           (ncclTeam, int, ncclLsaBarrierHandle*, ncclDevResourceRequirements*)) {
  return refuse("LsaBarrierCreateRequirement");
}

TUTTI_NCCL(ncclResult_t, ncclGinBarrierCreateRequirement,
           (ncclComm_t, ncclTeam, int, ncclGinBarrierHandle*, ncclDevResourceRequirements*)) {
  return refuse("GinBarrierCreateRequirement");
}

TUTTI_NCCL(ncclResult_t, ncclLLA2ACreateRequirement, (int, int, ncclLLA2AHandle*, ncclDevResourceRequirements*)) {
  return refuse("LLA2ACreateRequirement");
}

// Useful for LLA2ACreateRequirement only, which refuses.
TUTTI_NCCL(int, ncclLLA2ACalcSlots, (int, int)) {
  return 0;
}

// Without the device API, no kernel reaches the memory of a different rank: each rank is a team of its own there.
TUTTI_NCCL(ncclTeam, ncclTeamWorld, (ncclComm_t comm)) {
  if (tutti::nccl::check_handle(comm, "TeamWorld") != ncclSuccess) return {0, 0, 0};
  return {comm->size, comm->rank, 1};
}

TUTTI_NCCL(ncclTeam, ncclTeamLsa, (ncclComm_t comm)) {
  if (tutti::nccl::check_handle(comm, "TeamLsa") != ncclSuccess) return {0, 0, 0};
  return {1, 0, 1};
}

TUTTI_NCCL(ncclTeam, ncclTeamRail, (ncclComm_t comm)) {
  return pncclTeamWorld(comm);
}

TUTTI_NCCL(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam team, int rank)) {
  if (tutti::nccl::check_handle(comm, "TeamRankToWorld") != ncclSuccess) return -1;
  return comm->rank + (rank - team.rank) * team.stride;
}

TUTTI_NCCL(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam team, int rank)) {
  if (tutti::nccl::check_handle(comm, "TeamRankToLsa") != ncclSuccess) return -1;
  return (rank - team.rank) * team.stride;
}

// Every new communicator sets the log up again; before that there is nothing to read.
TUTTI_NCCL(void, ncclResetDebugInit, (void)) {}

extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {}
