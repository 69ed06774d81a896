// SPDX-License-Identifier: Apache-2.0
#define TUTTI_TABLE kAvx2Table
#include "device/host/reduce_kernels.inc"
