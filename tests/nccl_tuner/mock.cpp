// SPDX-License-Identifier: Apache-2.0
// A tuner plugin of NCCL in version MOCK_VERSION, with the layout of its version. It prefers tree and LL up to 16 KiB
// of an all-reduce, and ring and Simple above. It leaves other collectives as they are. With MOCK_FAILS_TO_BEGIN, init
// fails; with MOCK_FAILS_TO_CHOOSE, it fails for reduce-scatter.
#include <cstddef>
#include <cstdint>

namespace {

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

enum Result : int { kSuccess = 0, kInternalError = 3, kInvalidArgument = 4 };
enum Function : int { kReduceScatter = 3, kAllReduce = 4 };
enum TableIndex : int { kTree = 0, kRing = 1, kNvls = 4, kAlgorithms = 7, kLL = 0, kSimple = 2, kProtocols = 3 };
constexpr int kWarn = 2;
constexpr unsigned long kTuning = 64;
constexpr size_t kSmall = 16384;

struct Context {
  size_t ranks;
  Logger log;
};

int begin(size_t ranks, size_t machines, Logger log, void** context) {
#ifdef MOCK_FAILS_TO_BEGIN
  log(kWarn, kTuning, __FILE__, __LINE__, "the map of %zu racks is missing", machines);
  static_cast<void>(ranks);
  *context = nullptr;
  return kInternalError;
#else
  static_cast<void>(machines);
  *context = new Context{ranks, log};
  return kSuccess;
#endif
}

int end(void* context) {
  delete static_cast<Context*>(context);
  return kSuccess;
}

/// The entry of the table that wins; false: the plugin has no opinion.
[[maybe_unused]] bool winner(const Context& context, int function, size_t bytes, int& result, int& algorithm,
                             int& protocol) {
  result = kSuccess;
#ifdef MOCK_FAILS_TO_CHOOSE
  if (function == kReduceScatter) {
    context.log(kWarn, kTuning, __FILE__, __LINE__, "no measurement of reduce-scatter on %zu ranks", context.ranks);
    result = kInternalError;
    return false;
  }
#else
  static_cast<void>(context);
#endif
  if (function != kAllReduce) return false;
  algorithm = bytes <= kSmall ? kTree : kRing;
  protocol = bytes <= kSmall ? kLL : kSimple;
  return true;
}

#if MOCK_VERSION == 2
int choose(void* context, int function, size_t bytes, int collnet, int nvls, int operations, int* algorithm,
           int* protocol, int* channels) {
  if (collnet != 0 || nvls != 0 || operations != 1) return kInvalidArgument;
  int result = kSuccess;
  if (winner(*static_cast<Context*>(context), function, bytes, result, *algorithm, *protocol)) *channels = 1;
  return result;
}
#else
/// Marks the winner. It also marks a place that the table excludes, which must have no effect.
int mark(void* context, int function, size_t bytes, int operations, float** rows, int algorithms, int protocols,
         int* channels) {
  if (operations != 1 || algorithms != kAlgorithms || protocols != kProtocols) return kInvalidArgument;
  auto* const costs = reinterpret_cast<float*>(rows);
  int result = kSuccess, algorithm = 0, protocol = 0;
  if (!winner(*static_cast<Context*>(context), function, bytes, result, algorithm, protocol)) return result;
  costs[algorithm * kProtocols + protocol] = 0;
  costs[kNvls * kProtocols + kSimple] = 0;
  *channels = 1;
  return kSuccess;
}
#endif
#if MOCK_VERSION == 3
int choose(void* context, int function, size_t bytes, int operations, float** rows, int algorithms, int protocols,
           int* channels) {
  return mark(context, function, bytes, operations, rows, algorithms, protocols, channels);
}
#elif MOCK_VERSION >= 4
int choose(void* context, int function, size_t bytes, int operations, float** rows, int algorithms, int protocols,
           int registered, int* channels) {
  if (registered != 0 && registered != 1) return kInvalidArgument;
  return mark(context, function, bytes, operations, rows, algorithms, protocols, channels);
}
#endif

#if MOCK_VERSION >= 5
struct Domains {
  int count, fewest, most;
};
int begin_with_domains(void** context, uint64_t communicator, size_t ranks, size_t machines, Logger log,
                       const Domains* domains, double* constants) {
  if (communicator == 0 || domains == nullptr || constants == nullptr) return kInvalidArgument;
  const bool fits = static_cast<size_t>(domains->count) == machines && domains->fewest <= domains->most &&
                    static_cast<size_t>(domains->most) <= ranks;
  if (!fits) return kInvalidArgument;
  for (int i = 0; i < 144; ++i) constants[i] = 15;
  return begin(ranks, machines, log, context);
}
using Init = decltype(&begin_with_domains);
constexpr Init kInit = begin_with_domains;
#else
using Init = decltype(&begin);
constexpr Init kInit = begin;
#endif

struct Table {
  const char* name;
  Init init;
  decltype(&choose) get_coll_info;
  decltype(&end) finalize;
#if MOCK_VERSION >= 6
  void* get_chunk_size;
#endif
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table MOCK_SYMBOL;
const Table MOCK_SYMBOL = {
    "mock",  kInit, choose, end,
#if MOCK_VERSION >= 6
    nullptr,
#endif
};
