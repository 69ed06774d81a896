// SPDX-License-Identifier: Apache-2.0
// NCCL's C API as function pointers, so that any library which has it can be measured without its header.
#pragma once

#include <cstddef>
#include <string>

#include "tutti/types.h"

struct ncclComm;
struct CUstream_st;

namespace tutti::bench::nccl {

using Comm = ncclComm*;
using Error = int;           ///< ncclResult_t; 0 is none
using Type = int;            ///< ncclDataType_t
using Op = int;              ///< ncclRedOp_t
using Queue = CUstream_st*;  ///< cudaStream_t
using Window = void*;        ///< ncclWindow_t

struct UniqueId {
  char bytes[128];
};

/// Numbers of nccl.h.
inline constexpr Error kInProgress = 7;
inline constexpr int kScalarHostImmediate = 1;
inline constexpr int kWindowCollSymmetric = 1;
Type type_of(DataType type);
Op op_of(ReduceOp op);  ///< not of a pre-multiplied sum, which has to be created

struct Api {
  std::string path;  ///< never closed: libraries of this sort leave threads behind

  Error (*get_version)(int* version);
  const char* (*get_error_string)(Error error);
  Error (*get_unique_id)(UniqueId* id);
  Error (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank);
  Error (*comm_destroy)(Comm comm);
  Error (*comm_abort)(Comm comm);
  Error (*group_start)();
  Error (*group_end)();
  Error (*all_reduce)(const void* input, void* output, size_t count, Type type, Op op, Comm comm, Queue stream);
  Error (*reduce_scatter)(const void* input, void* output, size_t count, Type type, Op op, Comm comm, Queue stream);
  Error (*all_gather)(const void* input, void* output, size_t count, Type type, Comm comm, Queue stream);
  Error (*broadcast)(const void* input, void* output, size_t count, Type type, int root, Comm comm, Queue stream);
  Error (*reduce)(const void* input, void* output, size_t count, Type type, Op op, int root, Comm comm, Queue stream);
  Error (*send)(const void* input, size_t count, Type type, int peer, Comm comm, Queue stream);
  Error (*recv)(void* output, size_t count, Type type, int peer, Comm comm, Queue stream);
  Error (*create_pre_mul_sum)(Op* op, void* scalar, Type type, int residence, Comm comm);
  Error (*op_destroy)(Op op, Comm comm);
  // Null in old libraries.
  const char* (*get_last_error)(Comm comm);
  Error (*comm_get_async_error)(Comm comm, Error* error);
  Error (*mem_alloc)(void** memory, size_t bytes);
  Error (*mem_free)(void* memory);
  Error (*window_register)(Comm comm, void* buffer, size_t bytes, Window* window, int flags);
  Error (*window_deregister)(Comm comm, Window window);

  /// "2.27.7"
  std::string version() const;
  /// Ok, or a failure with the library's text. `function` names the called function.
  Status status(Error error, std::string_view function, Comm comm) const;
};

/// Opens the library. Its symbols stay its own.
Result<Api> load(const std::string& path);

}  // namespace tutti::bench::nccl
