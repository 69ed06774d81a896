// SPDX-License-Identifier: Apache-2.0
// Plans as a picture: ranks from top to bottom, time from left to right, messages as arrows, chunks as colours.
#pragma once

#include <string>

#include "program/file/file.h"

namespace tutti::tools {

/// One loop of the plans as SVG. A step takes one unit of time and begins as soon as its messages have arrived; a
/// message takes one unit. Fails for wrong plans, and for more ranks or messages than a person can see.
Result<std::string> draw(const program::PlanFile& file);

}  // namespace tutti::tools
