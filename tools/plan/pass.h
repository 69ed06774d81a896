// SPDX-License-Identifier: Apache-2.0
// A plan or program before and after one pass, as text.
#pragma once

#include <string>
#include <vector>

#include "program/file/file.h"

namespace tutti::tools {

/// Names for --pass, in the order in which the passes run.
std::vector<std::string> pass_names();

/// Returns the plan of a rank before and after a pass. Fails if the pass does not take the plans; the text is the
/// reason.
Result<std::string> show_pass(const std::string& pass, const program::PlanFile& file, uint32_t rank, bool in_place);

}  // namespace tutti::tools
