// SPDX-License-Identifier: Apache-2.0
// Plans as a picture: ranks from top to bottom, time from left to right, messages as arrows, chunks as colours.
#pragma once

#include <string>

#include "program/file/file.h"

namespace tutti::tools {

/// The part of a loop that a picture shows.
struct View {
  uint32_t first_rank = 0;
  uint32_t rows = 0;   ///< ranks from first_rank on; 0: all of them
  uint32_t units = 0;  ///< of time, from the beginning of the loop; 0: to its end
};

/// One loop of the plans as SVG. A step takes one unit of time and begins as soon as its messages have arrived; a
/// message takes one unit. Messages from and to ranks that the view leaves out come from, or go to, the picture's edge.
/// Each message is a path of the class "message", each step a rectangle of the class "step", with their titles. A rank
/// with strands has a row for each strand. Each wait is a path of the class "wait".
///
/// The plans are proved (program::verify_file). Fails if there is no rank of the view (kInvalidArgument), and if the
/// view has more ranks or messages than a person can see (kUnsupported).
Result<std::string> draw(const program::PlanFile& file, const View& view);

}  // namespace tutti::tools
