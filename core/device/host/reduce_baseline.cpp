// SPDX-License-Identifier: Apache-2.0
#define TUTTI_TABLE kBaselineTable
#include "device/host/reduce_kernels.inc"
