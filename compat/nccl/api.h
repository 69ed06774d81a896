// SPDX-License-Identifier: Apache-2.0
// TUTTI_NCCL(result, name, (parameters)) { body }: a function that applications call. The body is pname, a strong
// symbol; name is a weak alias of it, which profilers and other interposers may define themselves.
#pragma once

#include "nccl/nccl.h"

#define TUTTI_NCCL(result, name, parameters)                                                        \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
  extern "C" __attribute__((visibility("default"))) result p##name parameters;                      \
  result p##name parameters
