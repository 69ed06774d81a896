// SPDX-License-Identifier: Apache-2.0
// Nothing: nccl.h includes it for applications.
#pragma once
