// SPDX-License-Identifier: Apache-2.0
// Whether a machine as described is plausible. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/document.h"

namespace tutti::topology {

enum class Severity : uint8_t {
  kNote,     ///< may well be meant so
  kWarning,  ///< works, but slower than the machine could, or not as it was meant
  kError,    ///< no machine is like this, or nothing can be built from it
};
std::string_view to_string(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  FilePosition position;
  std::string what;
  std::string advice;  ///< the remedy
};

/// Everything implausible, in the order of the file.
std::vector<Finding> check(const Document& document);

/// "dgx.xml:7: warning: GPU 3 has 11 NVLinks, its siblings 12; ...". Without line where there is none.
std::string to_string(const Finding& finding, const Document& document);

/// Logs the first errors at warn, each with its remedy, and how many further findings `tutti topo check` prints: at
/// warn if errors are among them, else at info. A job or dry run uses the file all the same.
void warn_of_errors(const Document& document);

/// The most NVLinks that a GPU of this compute capability × 10 has; 0: not known.
uint32_t max_nvlinks(int sm);

}  // namespace tutti::topology
