// SPDX-License-Identifier: Apache-2.0
// The table that tuner plugin `table` follows, with comments that say what it was made from.
#pragma once

#include <string>

#include "tools/tune/sweep.h"

namespace tutti::tune {

/// `failure`: what ended the sweep early; ok if nothing did.
std::string table_text(const Request& request, const Offer& offer, const Findings& findings, const Status& failure);

}  // namespace tutti::tune
