// SPDX-License-Identifier: Apache-2.0
// The table for the tuner plugin `table`, with comments on its origin.
#pragma once

#include <string>

#include "tools/tune/sweep.h"

namespace tutti::tune {

/// `failure`: the reason for an early end of the sweep; ok if it was complete.
std::string table_text(const Request& request, const Offer& offer, const Findings& findings, const Status& failure);

}  // namespace tutti::tune
