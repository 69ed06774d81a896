// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::topology {

/// The text of configs/hardware/built-in.yaml.
const char* built_in_hardware();

}  // namespace tutti::topology
