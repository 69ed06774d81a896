// SPDX-License-Identifier: Apache-2.0
// Checks the values on which compiled applications rely: sizes, offsets and values of NCCL 2.28.9 on x86-64.
#include <cstddef>

#include "nccl/nccl.h"

static_assert(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE && NCCL_VERSION(2, 4, 8) == 2408);
static_assert(sizeof(ncclUniqueId) == 128 && alignof(ncclUniqueId) == 1);

static_assert(sizeof(ncclConfig_t) == 80);
static_assert(offsetof(ncclConfig_t, magic) == 8 && offsetof(ncclConfig_t, version) == 12);
static_assert(offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, cgaClusterSize) == 20);
static_assert(offsetof(ncclConfig_t, minCTAs) == 24 && offsetof(ncclConfig_t, maxCTAs) == 28);
static_assert(offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, splitShare) == 40);
static_assert(offsetof(ncclConfig_t, trafficClass) == 44 && offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, collnetEnable) == 56 && offsetof(ncclConfig_t, CTAPolicy) == 60);
static_assert(offsetof(ncclConfig_t, shrinkShare) == 64 && offsetof(ncclConfig_t, nvlsCTAs) == 68);
static_assert(offsetof(ncclConfig_t, nChannelsPerNetPeer) == 72 && offsetof(ncclConfig_t, nvlinkCentricSched) == 76);

static_assert(sizeof(ncclSimInfo_t) == 24 && offsetof(ncclSimInfo_t, estimatedTime) == 16);

static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4);
static_assert(ncclInProgress == 7 && ncclNumResults == 8 && ncclNumTypes == 12 && ncclNumOps == 5);
