// SPDX-License-Identifier: Apache-2.0
#include "config/plan_names.h"

#include <algorithm>

namespace tutti::config {

bool names_plan_files(std::string_view value) {
  return value.ends_with('/') || value.ends_with(".yaml") || value.ends_with(".yml") || value.ends_with(".json");
}

bool names_plan_file(std::string_view value, std::string_view file) {
  if (!names_plan_files(value)) return false;
  if (!value.ends_with('/')) return value == file;
  return file.starts_with(value) && file.find('/', value.size()) == std::string_view::npos;
}

std::vector<PlanPath> plan_paths(const Config& config) {
  std::vector<PlanPath> out;
  const auto add = [&](const std::string& value, const std::string& place) {
    const auto same = [&](const PlanPath& known) { return known.path == value; };
    if (names_plan_files(value) && std::none_of(out.begin(), out.end(), same)) out.push_back({value, place});
  };
  add(config.text("algorithm"), config.place("algorithm"));
  for (const Rule& rule : config.rules()) add(rule.algorithm, rule.algorithm_place);
  return out;
}

}  // namespace tutti::config
