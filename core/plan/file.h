// SPDX-License-Identifier: Apache-2.0
// Plans as files: YAML or JSON, described for authors in docs/plan-format.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

/// All ranks' plans of one collective on one channel; plans[r] is rank r's.
struct PlanFile {
  std::string algorithm;  ///< name of the algorithm, for texts
  std::string variant;    ///< may be empty
  std::vector<Plan> plans;
  bool operator==(const PlanFile&) const = default;
};

inline constexpr uint32_t kPlanFileVersion = 1;

/// Reads YAML or JSON, strictly: an unknown key, a wrong type or a value out of range is a failure whose text begins
/// with "name:line:column: ". The plans are valid one by one; verify() says whether they work together.
Result<PlanFile> parse_file(std::string_view text, const std::string& name);
Result<PlanFile> read_file(const std::filesystem::path& path);

std::string to_yaml(const PlanFile& file);
std::string to_json(const PlanFile& file);
/// Writes JSON if the name ends with ".json", else YAML.
Status write_file(const PlanFile& file, const std::filesystem::path& path);

}  // namespace tutti::plan
