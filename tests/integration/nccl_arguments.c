// SPDX-License-Identifier: Apache-2.0
// A C program on libnccl.so.2 over Tutti. Without an argument: calls that need no GPU. "unique_id": asks for an id
// twice. "one_rank": a communicator of one rank; needs a GPU, and ends with 77 if there is none.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, ncclGetLastError(NULL)); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

enum { kSkipped = 77 };

static void version_and_texts(void) {
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess && version == 22809 && version == NCCL_VERSION_CODE);
  CHECK(pncclGetVersion(NULL) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "GetVersion") != NULL);
  for (int result = ncclSuccess; result < ncclNumResults; ++result) {
    CHECK(strlen(ncclGetErrorString((ncclResult_t)result)) > 0);
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)result), "unknown result code") != 0);
  }
  CHECK(strcmp(ncclGetErrorString((ncclResult_t)99), "unknown result code") == 0);
  CHECK(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
  ncclResetDebugInit();
}

static void making(void) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  ncclComm_t comm = NULL;
  CHECK(ncclGetUniqueId(NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(NULL, 1, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 2, id, -1) == ncclInvalidArgument);
  CHECK(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(NULL, 1, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(&comm, -1, NULL) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(&comm, 0, NULL) == ncclSuccess);
  const int twice[2] = {0, 0};
  const int negative[1] = {-1};
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, twice) == ncclInvalidUsage);
  CHECK(ncclCommInitAll(comms, 1, negative) == ncclInvalidArgument);
  CHECK(comm == NULL);
}

static ncclResult_t init_with(ncclConfig_t* config) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  ncclComm_t comm = NULL;
  return ncclCommInitRankConfig(&comm, 1, id, 0, config);
}

static void configuration(void) {
  const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  ncclConfig_t config = fresh;
  config.magic = 1;
  CHECK(init_with(&config) == ncclInvalidArgument);
  config = fresh;
  config.blocking = 2;
  CHECK(init_with(&config) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "blocking") != NULL);
  config = fresh;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  CHECK(init_with(&config) == ncclInvalidArgument);
  config = fresh;
  config.maxCTAs = 0;
  CHECK(init_with(&config) == ncclInvalidArgument);
  config = fresh;
  config.nvlinkCentricSched = 7;
  CHECK(init_with(&config) == ncclInvalidArgument);
}

static void null_communicators(void) {
  int number = 0;
  ncclResult_t error = ncclSuccess;
  ncclComm_t made = NULL;
  void* handle = NULL;
  ncclWindow_t window = NULL;
  ncclRedOp_t op = ncclSum;
  float scalar = 1;
  CHECK(ncclCommCount(NULL, &number) == ncclInvalidArgument);
  CHECK(ncclCommCuDevice(NULL, &number) == ncclInvalidArgument);
  CHECK(ncclCommUserRank(NULL, &number) == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(NULL, &error) == ncclInvalidArgument);
  CHECK(ncclCommSplit(NULL, 0, 0, &made, NULL) == ncclInvalidArgument);
  CHECK(ncclCommSplit(NULL, 0, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclCommShrink(NULL, &number, 1, &made, NULL, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommShrink(NULL, &number, 1, &made, NULL, 8) == ncclInvalidArgument);
  CHECK(ncclCommRegister(NULL, &number, sizeof number, &handle) == ncclInvalidArgument);
  CHECK(ncclCommDeregister(NULL, handle) == ncclInvalidArgument);
  CHECK(ncclCommWindowRegister(NULL, &number, sizeof number, &window, 0) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(NULL, window) == ncclInvalidArgument);
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, NULL) == ncclInvalidArgument);
  CHECK(ncclRedOpDestroy(op, NULL) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(NULL) == ncclSuccess);
  CHECK(ncclCommDestroy(NULL) == ncclSuccess);
  CHECK(ncclCommAbort(NULL) == ncclSuccess);
  CHECK(ncclCommRevoke(NULL, NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(ncclMemFree(NULL) == ncclSuccess);
}

static void calls_without_communicator(void) {
  float a[4] = {0};
  float b[4] = {0};
  CHECK(ncclAllReduce(a, b, 4, ncclFloat, ncclSum, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclReduceScatter(a, b, 4, ncclFloat, ncclSum, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclAllGather(a, b, 4, ncclFloat, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclBroadcast(a, b, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclBcast(a, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclReduce(a, b, 4, ncclFloat, ncclSum, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclAlltoAll(a, b, 4, ncclFloat, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclGather(a, b, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclScatter(a, b, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclSend(a, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclRecv(b, 4, ncclFloat, 0, NULL, NULL) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "null") != NULL);
}

static void groups(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
  CHECK(ncclGroupStart() == ncclSuccess && ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess && ncclGroupEnd() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  // The outermost end of a group returns a mistake in the group, and only this mistake.
  CHECK(ncclGroupStart() == ncclSuccess && ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(NULL, NULL, 1, ncclFloat, ncclSum, NULL, NULL) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclSuccess && ncclGroupEnd() == ncclInvalidArgument);
  CHECK(ncclGroupStart() == ncclSuccess && ncclGroupEnd() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess && ncclGroupSimulateEnd(&info) == ncclSuccess);
  info.magic = 0;
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
}

static ncclUniqueId unique_ids(void) {
  ncclUniqueId id;
  ncclUniqueId other;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclGetUniqueId(&other) != ncclSuccess) exit(1);
  CHECK(memcmp(&id, &other, sizeof id) != 0);
  return id;
}

static void without_gpu(ncclUniqueId id) {
  ncclComm_t comm = NULL;
  CHECK(ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess && comm == NULL);
  CHECK(strlen(ncclGetLastError(NULL)) > 0);
}

static void one_rank(ncclUniqueId id) {
  ncclComm_t comm = NULL;
  CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess && comm != NULL);
  int number = 0;
  CHECK(ncclCommCount(comm, &number) == ncclSuccess && number == 1);
  CHECK(ncclCommUserRank(comm, &number) == ncclSuccess && number == 0);
  float* data = NULL;
  CHECK(ncclMemAlloc((void**)&data, 4096) == ncclSuccess);
  CHECK(ncclAllReduce(data, data, 16, ncclFloat, ncclNumOps, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, 16, ncclNumTypes, ncclSum, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, (size_t)-1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(NULL, data, 16, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclBcast(data, 16, ncclFloat, 1, comm, NULL) == ncclInvalidArgument);
  const float values[2] = {3, 5};
  float half = 0.5f;
  CHECK(cudaMemcpy(data, values, sizeof values, cudaMemcpyHostToDevice) == cudaSuccess);
  ncclRedOp_t op = ncclSum;
  CHECK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm) == ncclSuccess);
  CHECK(ncclAllReduce(data, data, 2, ncclDouble, op, comm, NULL) == ncclInvalidArgument);
  CHECK(ncclAllReduce(data, data, 2, ncclFloat, op, comm, NULL) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, comm) == ncclSuccess && ncclRedOpDestroy(op, comm) == ncclInvalidArgument);
  float halves[2] = {0};
  CHECK(cudaMemcpy(halves, data, sizeof halves, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(halves[0] == 1.5f && halves[1] == 2.5f);
  CHECK(ncclMemFree(data) == ncclSuccess);
  CHECK(ncclCommFinalize(comm) == ncclSuccess && ncclCommFinalize(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comm) == ncclSuccess && ncclCommDestroy(comm) == ncclInvalidArgument);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "unique_id") == 0) {
    unique_ids();
    return 0;
  }
  int gpus = 0;
  const int has_gpu = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
  if (argc > 1 && strcmp(argv[1], "one_rank") == 0) {
    if (!has_gpu) return kSkipped;
    one_rank(unique_ids());
    return 0;
  }
  version_and_texts();
  making();
  configuration();
  null_communicators();
  calls_without_communicator();
  groups();
  const ncclUniqueId id = unique_ids();
  if (!has_gpu) without_gpu(id);
  return 0;
}
