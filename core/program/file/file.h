// SPDX-License-Identifier: Apache-2.0
// Plans as files: YAML or JSON, described for authors in docs/plan-format.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "program/cache.h"
#include "program/plan.h"
#include "program/verify/prove.h"

namespace tutti::program {

/// The calls for which the author of a plan file means the plans.
struct Purpose {
  uint64_t min_size = 0;             ///< bytes of a block
  uint64_t max_size = UINT64_MAX;    ///< inclusive
  std::vector<DataType> data_types;  ///< empty: all
  bool operator==(const Purpose&) const = default;
};

/// All ranks' plans of one collective on one channel; plans[r] is rank r's.
struct PlanFile {
  std::string algorithm;  ///< name of the algorithm, for texts
  std::string variant;    ///< may be empty
  std::vector<Plan> plans;
  Purpose purpose = {};
  /// Of a file that was read: by rank and step, where the step stands. If one plan is that of all ranks, it alone.
  std::vector<std::vector<uint32_t>> lines = {};
  /// Equal files may have different lines.
  bool operator==(const PlanFile& other) const {
    return algorithm == other.algorithm && variant == other.variant && plans == other.plans && purpose == other.purpose;
  }
};

/// The versions that are read. A file that uses nothing of a later version is written as version 1.
inline constexpr uint32_t kFirstPlanFileVersion = 1;
inline constexpr uint32_t kPlanFileVersion = 2;

/// Reads YAML or JSON, strictly: an unknown key, a wrong type or a value out of range is a failure whose text begins
/// with "name:line:column: ". The plans are valid one by one; verify() says whether they work together.
Result<PlanFile> parse_file(std::string_view text, const std::string& name);
Result<PlanFile> read_file(const std::filesystem::path& path);

/// prove() for the plans of a file. The text of a failure begins with "name:line: ", the place of the step that the
/// counter-example is about, or with "name: ".
Verdict prove_file(const PlanFile& file, const std::string& name, const VerifyOptions& options,
                   const ProofLimits& limits = {});
/// The same, where a file that cannot be proved is wrong, too.
Status verify_file(const PlanFile& file, const std::string& name, const VerifyOptions& options = {},
                   const ProofLimits& limits = {});

/// prove_file() for each use of buffers that the collective allows: out of place, then in place. Ends at the first
/// failure. If the plans fail in place alone, the text says so.
Verdict prove_uses(const PlanFile& file, const std::string& name, uint32_t slots, const ProofLimits& limits = {});

/// All counter-examples (program/verify/prove.h), out of place and in place, where the collective allows both. Each
/// text begins like that of a failure of prove_file, and names the channel and the use of buffers.
Result<std::vector<std::string>> all_faults(const PlanFile& file, const std::string& name, uint32_t slots,
                                            const ProofLimits& limits = {});

/// A digest of all that a file says. Comments and the layout of the text make no difference.
Fingerprint digest(const PlanFile& file);

std::string to_yaml(const PlanFile& file);
std::string to_json(const PlanFile& file);
/// Writes JSON if the name ends with ".json", else YAML.
Status write_file(const PlanFile& file, const std::filesystem::path& path);

}  // namespace tutti::program
