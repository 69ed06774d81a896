// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cuda/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace tutti::bench::nccl {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// The name of a function that the library must have and lacks; null if it has all.
const char* first_lacking(void* library, Api& api) {
  const char* lacking = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!find(library, name, function) && lacking == nullptr) lacking = name;
  };
  need("ncclGetVersion", api.get_version);
  need("ncclGetErrorString", api.get_error_string);
  need("ncclGetUniqueId", api.get_unique_id);
  need("ncclCommInitRank", api.comm_init_rank);
  need("ncclCommDestroy", api.comm_destroy);
  need("ncclCommAbort", api.comm_abort);
  need("ncclGroupStart", api.group_start);
  need("ncclGroupEnd", api.group_end);
  need("ncclAllReduce", api.all_reduce);
  need("ncclReduceScatter", api.reduce_scatter);
  need("ncclAllGather", api.all_gather);
  need("ncclBroadcast", api.broadcast);
  need("ncclReduce", api.reduce);
  need("ncclSend", api.send);
  need("ncclRecv", api.recv);
  need("ncclRedOpCreatePreMulSum", api.create_pre_mul_sum);
  need("ncclRedOpDestroy", api.op_destroy);
  find(library, "ncclGetLastError", api.get_last_error);
  find(library, "ncclCommGetAsyncError", api.comm_get_async_error);
  find(library, "ncclMemAlloc", api.mem_alloc);
  find(library, "ncclMemFree", api.mem_free);
  find(library, "ncclCommWindowRegister", api.window_register);
  find(library, "ncclCommWindowDeregister", api.window_deregister);
  return lacking;
}

}  // namespace

Type type_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return 0;
    case DataType::kUint8:
      return 1;
    case DataType::kInt32:
      return 2;
    case DataType::kUint32:
      return 3;
    case DataType::kInt64:
      return 4;
    case DataType::kUint64:
      return 5;
    case DataType::kFloat16:
      return 6;
    case DataType::kFloat32:
      return 7;
    case DataType::kFloat64:
      return 8;
    case DataType::kBfloat16:
      return 9;
    case DataType::kFloat8E4M3:
      return 10;
    case DataType::kFloat8E5M2:
      return 11;
  }
  return -1;
}

Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAvg:
      return 4;
    case ReduceOp::kPreMulSum:
      break;
  }
  return -1;
}

std::string Api::version() const {
  int code = 0;
  if (get_version(&code) != 0) return "?";
  // Since 2.9 two digits each; before one each for major and minor.
  const int major = code >= 10'000 ? code / 10'000 : code / 1000;
  const int minor = code >= 10'000 ? code / 100 % 100 : code / 100 % 10;
  return fmt::format("{}.{}.{}", major, minor, code % 100);
}

Status Api::status(Error error, std::string_view function, Comm comm) const {
  if (error == 0) return {};
  const char* last = get_last_error != nullptr ? get_last_error(comm) : nullptr;
  const bool more = last != nullptr && *last != '\0';
  return Status(Code::kDevice,
                fmt::format("{}: {}: {}{}{}{}", std::filesystem::path(path).filename().string(), function,
                            get_error_string(error), more ? " (" : "", more ? last : "", more ? ")" : ""));
}

Result<Api> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    return Status(Code::kNotFound, fmt::format("cannot load the library: {}", why == nullptr ? path : why));
  }
  Api api{};
  api.path = path;
  if (const char* lacking = first_lacking(library, api)) {
    return Status(Code::kNotFound, fmt::format("{} is no library with NCCL's API: it has no {}", path, lacking));
  }
  return api;
}

}  // namespace tutti::bench::nccl
