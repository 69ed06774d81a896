// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/plan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "config/plan_names.h"
#include "config/trust.h"
#include "log/log.h"
#include "program/file/algorithm.h"

namespace tutti::communicator {
namespace {

/// Ranks prove again with the slots that their connections have.
constexpr uint32_t kSlots = 2;

/// The plan files in a folder.
Result<std::vector<std::string>> files_in(const config::PlanPath& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path, error)) {
    const std::string name = folder.path + entry.path().filename().string();
    if (config::names_plan_files(name)) files.push_back(name);
  }
  if (error) {
    return Status(Code::kNotFound, fmt::format("{}: the folder '{}' of plan files cannot be read: {}", folder.place,
                                               folder.path, error.message()));
  }
  if (files.empty()) {
    return config::wrong(folder.place,
                         fmt::format("the folder '{}' holds no plan file (.yaml, .yml or .json)", folder.path));
  }
  std::sort(files.begin(), files.end());
  return files;
}

tuner::Algorithm::Meant meant_of(const program::PlanFile& file) {
  tuner::Algorithm::Meant meant{static_cast<uint32_t>(file.plans.size()), file.purpose.min_size, file.purpose.max_size,
                                0};
  for (const DataType type : file.purpose.data_types) meant.data_types |= uint64_t{1} << static_cast<uint32_t>(type);
  return meant;
}

}  // namespace

Result<PlanFiles> PlanFiles::read(const config::Config& config) {
  PlanFiles made;
  for (const config::PlanPath& named : config::plan_paths(config)) {
    std::vector<std::string> paths = {named.path};
    if (named.path.ends_with('/')) {
      TUTTI_ASSIGN(paths, files_in(named));
    }
    for (const std::string& path : paths) TUTTI_TRY(made.add(path, config));
  }
  return made;
}

Status PlanFiles::add(const std::string& path, const config::Config& config) {
  const auto same = [&](const File& file) { return file.path == path; };
  if (std::any_of(files_.begin(), files_.end(), same)) return {};
  TUTTI_TRY(config::check_trust(path, "the plan file", config.text("plugins.trust")));
  TUTTI_ASSIGN(program::PlanFile content, program::read_file(path));
  if (content.plans.front().collective == Collective::kSendRecv) {
    return {Code::kConfig,
            fmt::format("{}: a plan file of send_recv does not run: sends and receives have no algorithm", path)};
  }
  files_.push_back({path, std::move(content)});
  return {};
}

std::vector<std::string> PlanFiles::identity() const {
  std::vector<std::string> lines;
  for (const File& file : files_) {
    const program::Fingerprint digest = program::digest(file.content);
    lines.push_back(fmt::format("{}={:016x}{:016x}", file.path, digest.high, digest.low));
  }
  return lines;
}

Status PlanFiles::prove(uint32_t rank_count) const {
  for (const File& file : files_) {
    if (file.content.plans.size() != rank_count) continue;
    const program::Verdict verdict = program::prove_uses(file.content, file.path, kSlots);
    if (verdict.status.ok()) continue;
    std::string text(verdict.status.text());
    if (!verdict.decided) {
      text += "; so the plans cannot be proved: set check.plans to false if 'tutti plan verify' finds them right";
    }
    return {Code::kConfig, std::move(text)};
  }
  return {};
}

void PlanFiles::add_to(tuner::Choices& choices, const tutti_topology& topology, bool warns) const {
  for (const File& file : files_) {
    if (warns && file.content.plans.size() != topology.rank_count) {
      log::warn("{} is for {} ranks and takes no part in this communicator of {}", file.path, file.content.plans.size(),
                topology.rank_count);
    }
    program::FileAlgorithm made = program::algorithm_of(file.content, file.path, topology.max_channels, topology);
    choices.algorithms.emplace_back(made.plugin, std::move(made.instance)).meant = meant_of(file.content);
  }
}

}  // namespace tutti::communicator
