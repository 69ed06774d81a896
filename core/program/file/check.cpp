// SPDX-License-Identifier: Apache-2.0
// Plan files as a whole: proof and digest.
#include <fmt/format.h>

#include "program/file/file.h"

namespace tutti::program {

Status verify_file(const PlanFile& file, const std::string& name, const VerifyOptions& options) {
  std::optional<StepPlace> place;
  const Status verdict = verify(file.plans, options, &place);
  if (verdict.ok()) return verdict;
  if (!place || place->rank >= file.lines.size()) return verdict.with_context(name);
  return verdict.with_context(fmt::format("{}:{}", name, file.lines[place->rank][place->step]));
}

Fingerprint digest(const PlanFile& file) {
  return fingerprint(std::string_view(to_json(file)));
}

}  // namespace tutti::program
