// SPDX-License-Identifier: Apache-2.0
// Plan files as a whole: proof and digest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "program/file/file.h"
#include "program/repeat.h"

namespace tutti::program {
namespace {

/// "name:line", where the line is known, or "name".
std::string where(const PlanFile& file, const std::string& name, const std::optional<StepPlace>& place) {
  if (!place || file.lines.empty()) return name;
  const bool all_alike = file.lines.size() == 1;
  if (!all_alike && place->rank >= file.lines.size()) return name;
  const std::vector<uint32_t>& lines = file.lines[all_alike ? 0 : place->rank];
  const uint32_t step = rolled_step(file.plans[place->rank], place->step).step;
  return step < lines.size() ? fmt::format("{}:{}", name, lines[step]) : name;
}

}  // namespace

Verdict prove_file(const PlanFile& file, const std::string& name, const VerifyOptions& options,
                   const ProofLimits& limits) {
  std::optional<StepPlace> place;
  Verdict verdict = prove(static_cast<uint32_t>(file.plans.size()), source_of(file.plans), options, limits, &place);
  if (!verdict.status.ok()) verdict.status = verdict.status.with_context(where(file, name, place));
  return verdict;
}

Status verify_file(const PlanFile& file, const std::string& name, const VerifyOptions& options,
                   const ProofLimits& limits) {
  return prove_file(file, name, options, limits).status;
}

Verdict prove_uses(const PlanFile& file, const std::string& name, uint32_t slots, const ProofLimits& limits) {
  Verdict all;
  for (const bool in_place : buffer_uses(file.plans.front().collective)) {
    Verdict verdict = prove_file(file, name, {slots, in_place}, limits);
    if (!verdict.status.ok()) {
      if (!in_place || !verdict.decided) return verdict;
      const std::string text(verdict.status.text());
      verdict.status = {verdict.status.code(),
                        text + "; this holds for calls in place, which a plan that runs must allow"};
      return verdict;
    }
    if (all.how != verdict.how) all.how += (all.how.empty() ? "" : " and ") + verdict.how;
  }
  return all;
}

Result<std::vector<std::string>> all_faults(const PlanFile& file, const std::string& name, uint32_t slots,
                                            const ProofLimits& limits) {
  struct Found {
    CounterExample fault;
    std::vector<std::string> uses;
  };
  std::vector<Found> all;
  std::map<std::string, size_t> known;  // by text: the number in `all`
  for (const bool in_place : buffer_uses(file.plans.front().collective)) {
    TUTTI_ASSIGN(const auto faults, counter_examples(file.plans, {slots, in_place}, limits));
    for (const CounterExample& fault : faults) {
      const auto [at, is_new] = known.try_emplace(fault.text, all.size());
      if (is_new) all.push_back({fault, {}});
      all[at->second].uses.emplace_back(text_of_use(in_place));
    }
  }
  std::vector<std::string> texts;
  texts.reserve(all.size());
  for (const auto& [fault, uses] : all) {
    texts.push_back(fmt::format("{}: channel {}, {}: {}", where(file, name, fault.place), file.plans.front().channel,
                                fmt::join(uses, " and "), fault.text));
  }
  return texts;
}

Fingerprint digest(const PlanFile& file) {
  return fingerprint(std::string_view(to_json(file)));
}

}  // namespace tutti::program
