// SPDX-License-Identifier: Apache-2.0
// Settings that no job can follow together.
#pragma once

#include "config/config.h"

namespace tutti::communicator {

/// Makes the checks of a job that need its settings alone: settings that contradict each other, racks, and the files of
/// `topology.file` and `hardware.file`. kConfig or kNotFound, with the place of the setting. Any thread.
Status check_settings(const config::Config& config);

}  // namespace tutti::communicator
