// SPDX-License-Identifier: Apache-2.0
// Random machines, as documents.
#pragma once

#include <random>

#include "topology/document.h"

namespace tutti::topology::test {

enum class Links { kAny, kSymmetric };

/// 1 to 4 CPUs of any vendor, trees of switches, and 1 to 16 GPUs of one kind or mixed. The GPUs have NVLink as mesh,
/// over NVSwitch or to their CPU, xGMI, C2C, or none. There are 0 to 8 adapters with 1 or 2 ports. kAny: some bundles
/// of links are wider in one direction.
Document random_machine(std::mt19937_64& random, Links links = Links::kAny);

/// A document, machine or not, whose every field holds anything that it can.
Document random_document(std::mt19937_64& random);

}  // namespace tutti::topology::test
