// SPDX-License-Identifier: Apache-2.0
// Calls each function of libnccl.so.2 with good and bad arguments on a GPU, and compares with the documented result
// codes. Runs on any libnccl.so.2 of this interface. Prints differences, and ends with 1 if there are any; with 77 if
// there is no GPU. Each scene is a process of its own: a call that crashes or hangs is a difference, too, and costs the
// rest of its scene.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"

enum { kSkipped = 77, kStopped = 2, kCount = 1000, kSceneSeconds = 30 };

/// Shared by the processes.
struct Tally {
  int made;
  int different;
  int version;
  const char* call;  ///< under way: text of the program, at the same place in all processes
};
static struct Tally* tally;

#define EXPECT(call, documented) (begin(#call), expect((call), (documented)))

static void begin(const char* call) {
  tally->call = call;
  ++tally->made;
}

static void expect(ncclResult_t got, ncclResult_t documented) {
  const char* const what = tally->call;
  tally->call = NULL;
  if (got == documented) return;
  ++tally->different;
  printf("differs  %s: %d, documented %d (%s)\n", what, (int)got, (int)documented, ncclGetLastError(NULL));
}

#define REQUIRE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      printf("WRONG    line %d: %s (%s)\n", __LINE__, #condition, ncclGetLastError(NULL)); \
      _exit(kStopped);                                                                     \
    }                                                                                      \
  } while (0)

static float* data;
static ncclUniqueId fresh_id(void) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

static ncclComm_t one_rank(void) {
  ncclComm_t comm = NULL;
  REQUIRE(ncclCommInitRank(&comm, 1, fresh_id(), 0) == ncclSuccess && comm != NULL);
  return comm;
}

static void making(void) {
  const ncclUniqueId id = fresh_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  EXPECT(ncclGetVersion(NULL), ncclInvalidArgument);
  EXPECT(ncclGetUniqueId(NULL), ncclInvalidArgument);
  EXPECT(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
  EXPECT(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
  EXPECT(ncclCommInitRank(&comm, 1, id, -1), ncclInvalidArgument);
  config.blocking = 3;
  EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config.blocking = NCCL_CONFIG_UNDEF_INT;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config.magic = 1;
  EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT(ncclCommInitRankScalable(&comm, 1, 0, 0, (ncclUniqueId*)&id, NULL), ncclInvalidArgument);
  EXPECT(ncclCommInitRankScalable(&comm, 1, 0, 2, (ncclUniqueId*)&id, NULL), ncclInvalidArgument);
  EXPECT(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument);
  EXPECT(ncclCommInitAll(&comm, -1, NULL), ncclInvalidArgument);
  const int twice[2] = {0, 0};
  const int absent[1] = {1000};
  ncclComm_t comms[2];
  EXPECT(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
  EXPECT(ncclCommInitAll(comms, 1, absent), ncclInvalidArgument);
}

static void lives(void) {
  int number = -1;
  ncclResult_t state = ncclSystemError;
  ncclComm_t comm = one_rank();
  EXPECT(ncclCommCount(comm, &number), ncclSuccess);
  EXPECT(ncclCommCount(comm, NULL), ncclInvalidArgument);
  EXPECT(ncclCommCuDevice(comm, NULL), ncclInvalidArgument);
  EXPECT(ncclCommUserRank(comm, NULL), ncclInvalidArgument);
  EXPECT(ncclCommUserRank(NULL, &number), ncclInvalidArgument);
  EXPECT(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  REQUIRE(state == ncclSuccess);
  EXPECT(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument);
  EXPECT(ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument);
  EXPECT(ncclCommFinalize(comm), ncclSuccess);
  EXPECT(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
  EXPECT(ncclCommDestroy(NULL), ncclSuccess);
  EXPECT(ncclCommAbort(NULL), ncclSuccess);
  EXPECT(ncclCommFinalize(NULL), ncclSuccess);
  comm = one_rank();
  EXPECT(ncclCommAbort(comm), ncclSuccess);
}

static void finalized(void) {
  ncclComm_t comm = one_rank();
  EXPECT(ncclCommFinalize(comm), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
}

static void revoked(void) {
  ncclComm_t comm = one_rank();
  EXPECT(ncclCommRevoke(comm, 1), ncclInvalidArgument);
  EXPECT(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
  EXPECT(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
  EXPECT(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
}

static void not_blocking(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL;
  ncclResult_t state = ncclInProgress;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, 1, fresh_id(), 0, &config);
  REQUIRE((begun == ncclInProgress || begun == ncclSuccess) && comm != NULL);
  while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  REQUIRE(state == ncclSuccess);
  const ncclResult_t called = ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, NULL);
  REQUIRE(called == ncclInProgress || called == ncclSuccess);
  for (state = ncclInProgress; state == ncclInProgress;) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  ncclComm_t blocks = one_rank();
  EXPECT(ncclGroupStart(), ncclSuccess);
  ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, blocks, NULL);
  ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, NULL);
  EXPECT(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT(ncclCommDestroy(blocks), ncclSuccess);
  EXPECT(ncclCommAbort(comm), ncclSuccess);
}

static void aborted_while_made(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL;
  EXPECT(ncclCommInitRankConfig(&comm, 2, fresh_id(), 0, &config), ncclInProgress);  // whose other rank never comes
  REQUIRE(comm != NULL);
  EXPECT(ncclCommAbort(comm), ncclSuccess);
}

static void splitting(void) {
  ncclComm_t comm = one_rank();
  ncclComm_t part = NULL;
  int rank = 0;
  EXPECT(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &part, NULL), ncclSuccess);
  REQUIRE(part == NULL);
  EXPECT(ncclCommSplit(comm, 3, 9, &part, NULL), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, part, NULL), ncclSuccess);
  EXPECT(ncclCommDestroy(part), ncclSuccess);
  EXPECT(ncclCommShrink(comm, &rank, 0, &part, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
  EXPECT(ncclCommShrink(comm, &rank, 1, &part, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
}

static void calling(void) {
  ncclComm_t comm = one_rank();
  float* const out = data + kCount;
  EXPECT(ncclAllReduce(data, out, kCount, ncclFloat, ncclAvg, comm, NULL), ncclSuccess);
  EXPECT(ncclAllReduce(data, out, 0, ncclFloat, ncclSum, comm, NULL), ncclSuccess);
  EXPECT(ncclAllReduce(data, out, kCount, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAllReduce(data, out, kCount, (ncclDataType_t)-1, ncclSum, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAllReduce(data, out, kCount, ncclFloat, ncclNumOps, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAllReduce(data, out, kCount, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument);
  EXPECT(ncclReduceScatter(data, out, kCount, ncclFloat, ncclMax, comm, NULL), ncclSuccess);
  EXPECT(ncclReduceScatter(data, out, kCount, ncclFloat, ncclMaxRedOp, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAllGather(data, out, kCount, ncclFloat, comm, NULL), ncclSuccess);
  EXPECT(ncclAllGather(data, out, kCount, ncclNumTypes, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclBroadcast(data, out, kCount, ncclFloat, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclBroadcast(data, out, kCount, ncclFloat, 1, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclBcast(data, kCount, ncclFloat, -1, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclReduce(data, out, kCount, ncclFloat, ncclMin, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclReduce(data, out, kCount, ncclFloat, ncclMin, 7, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAlltoAll(data, out, kCount, ncclFloat, comm, NULL), ncclSuccess);
  EXPECT(ncclGather(data, out, kCount, ncclFloat, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclGather(data, out, kCount, ncclFloat, 2, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclScatter(data, out, kCount, ncclFloat, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclScatter(data, out, kCount, ncclFloat, -1, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclSend(data, kCount, ncclFloat, 1, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclRecv(out, kCount, ncclFloat, -1, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclSend(data, kCount, ncclFloat, 0, comm, NULL), ncclInvalidUsage);  // to itself, alone
  EXPECT(ncclGroupStart(), ncclSuccess);
  EXPECT(ncclSend(data, kCount, ncclFloat, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclRecv(out, kCount, ncclFloat, 0, comm, NULL), ncclSuccess);
  EXPECT(ncclGroupEnd(), ncclSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
}

static void groups(void) {
  ncclComm_t comm = one_rank();
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT(ncclGroupStart(), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, ncclNumOps, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT(ncclGroupStart(), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, NULL), ncclSuccess);
  EXPECT(ncclGroupSimulateEnd(&info), ncclSuccess);
  info.magic = 0;
  EXPECT(ncclGroupStart(), ncclSuccess);
  EXPECT(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  ncclGroupEnd();  // whether that ended the group is not documented
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
}

static void reductions_and_memory(void) {
  ncclComm_t comm = one_rank();
  ncclComm_t other = one_rank();
  ncclRedOp_t op = ncclSum;
  float factor = 2;
  EXPECT(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm), ncclInvalidArgument);
  EXPECT(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, NULL), ncclInvalidArgument);
  EXPECT(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comm), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, op, comm, NULL), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclInt, op, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, op, other, NULL), ncclInvalidArgument);
  EXPECT(ncclRedOpDestroy(op, other), ncclInvalidArgument);
  EXPECT(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
  EXPECT(ncclRedOpDestroy(op, NULL), ncclInvalidArgument);
  EXPECT(ncclRedOpDestroy(op, comm), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, op, comm, NULL), ncclInvalidArgument);
  EXPECT(ncclRedOpCreatePreMulSum(&op, data, ncclFloat, ncclScalarDevice, comm), ncclSuccess);
  EXPECT(ncclAllReduce(data, data, kCount, ncclFloat, op, comm, NULL), ncclSuccess);
  EXPECT(ncclRedOpDestroy(op, comm), ncclSuccess);
  void* memory = NULL;
  void* handle = NULL;
  ncclWindow_t window = NULL;
  EXPECT(ncclMemAlloc(&memory, 1 << 20), ncclSuccess);
  EXPECT(ncclMemAlloc(NULL, 1 << 20), ncclUnhandledCudaError);
  EXPECT(ncclCommRegister(comm, memory, 1 << 20, &handle), ncclSuccess);
  EXPECT(ncclCommDeregister(comm, handle), ncclSuccess);
  EXPECT(ncclCommDeregister(comm, NULL), ncclSuccess);
  EXPECT(ncclCommWindowRegister(comm, memory, 1 << 20, &window, 0), ncclSuccess);
  EXPECT(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT(ncclCommWindowRegister(comm, memory, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  EXPECT(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT(ncclCommWindowDeregister(comm, NULL), ncclSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaGetLastError();
  EXPECT(ncclMemFree(memory), ncclSuccess);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
  EXPECT(ncclCommDestroy(other), ncclSuccess);
}

// Null where a library may write or read without looking: each by itself.
static void split_of_null(void) {
  ncclComm_t part = NULL;
  EXPECT(ncclCommSplit(NULL, 3, 9, &part, NULL), ncclInvalidArgument);
}
static void split_into_null(void) {
  ncclComm_t comm = one_rank();
  EXPECT(ncclCommSplit(comm, 3, 9, NULL, NULL), ncclInvalidArgument);
}
static void shrink_without_list(void) {
  ncclComm_t comm = one_rank();
  ncclComm_t part = NULL;
  EXPECT(ncclCommShrink(comm, NULL, 1, &part, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
}
static void register_into_null(void) {
  ncclComm_t comm = one_rank();
  EXPECT(ncclCommRegister(comm, data, kCount * sizeof *data, NULL), ncclInvalidArgument);
}
static void window_into_null(void) {
  ncclComm_t comm = one_rank();
  void* memory = NULL;
  EXPECT(ncclMemAlloc(&memory, 1 << 20), ncclSuccess);
  EXPECT(ncclCommWindowRegister(comm, memory, 1 << 20, NULL, 0), ncclInvalidArgument);
}

struct Scene {
  const char* name;
  void (*play)(void);
};
static const struct Scene kScenes[] = {
    {"making", making},
    {"lives", lives},
    {"finalized", finalized},
    {"revoked", revoked},
    {"not blocking", not_blocking},
    {"aborted while made", aborted_while_made},
    {"splitting", splitting},
    {"calling", calling},
    {"groups", groups},
    {"reductions and memory", reductions_and_memory},
    {"split of null", split_of_null},
    {"split into null", split_into_null},
    {"shrink without list", shrink_without_list},
    {"register into null", register_into_null},
    {"window into null", window_into_null},
};

/// In a process of its own, which ends with 0 once it has come to its end.
static void play(const struct Scene* scene) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) _exit(kSkipped);
  alarm(kSceneSeconds);
  REQUIRE(cudaMalloc((void**)&data, 2 * kCount * sizeof *data) == cudaSuccess);
  REQUIRE(cudaMemset(data, 0, 2 * kCount * sizeof *data) == cudaSuccess);
  ncclGetVersion(&tally->version);
  scene->play();
  _exit(0);
}

static void note_end(const struct Scene* scene, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  ++tally->different;
  const char* const call = tally->call != NULL ? tally->call : "no call under way";
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    printf("differs  %s: %s (%s); the rest of '%s' is left out\n", call,
           number == SIGALRM ? "does not return" : "ends the process", strsignal(number), scene->name);
  } else {
    printf("differs  %s: ends with %d; the rest of '%s' is left out\n", call, WEXITSTATUS(status), scene->name);
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tally == MAP_FAILED) return kStopped;
  for (size_t i = 0; i < sizeof kScenes / sizeof *kScenes; ++i) {
    int status = 0;
    tally->call = NULL;
    const pid_t child = fork();
    if (child == 0) play(&kScenes[i]);
    if (child < 0 || waitpid(child, &status, 0) != child) return kStopped;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) return kSkipped;
    note_end(&kScenes[i], status);
  }
  printf("%d result codes, %d not as documented; version %d\n", tally->made, tally->different, tally->version);
  return tally->different > 0;
}
