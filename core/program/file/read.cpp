// SPDX-License-Identifier: Apache-2.0
// The plans of a plan file.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "program/file/reader.h"
#include "program/verify/rotation.h"

namespace tutti::program {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxFileEntries = size_t{1} << 24;  // steps and peers of a file with one plan for all
constexpr uint32_t kMaxImages = 1u << 16;            // its ranks

}  // namespace

Result<PlanFile> Reader::read(const YAML::Node& root) {
  TUTTI_ASSIGN(const Plan head, read_head(root));
  PlanFile file;
  TUTTI_TRY(read_purpose(root, file.purpose));
  TUTTI_ASSIGN(file.algorithm, text(root["algorithm"], "algorithm"));
  if (root["variant"].IsDefined()) {
    TUTTI_ASSIGN(file.variant, text(root["variant"], "variant"));
  }
  const YAML::Node plans = root["plans"];
  TUTTI_TRY(check_list(plans, "plans"));
  TUTTI_TRY(read_plans(plans, head, file));
  if (root["message_chunks"].IsDefined()) return file;
  for (Plan& plan : file.plans) plan.message_chunks = longest_message_;
  return file;
}

Status Reader::read_plans(const YAML::Node& plans, const Plan& head, PlanFile& file) {
  if (plans.size() == 1 && plans[0].IsMap() && plans[0]["rank"].IsDefined()) {
    const YAML::Node rank = plans[0]["rank"];
    if (rank.IsScalar() && rank.Scalar() == "all") return read_images(plans[0], head, file);
    if (!number(rank, "rank", 0, head.rank_count - 1).ok()) {
      return wrong(rank, fmt::format("'rank' must be a number from 0 to {}, or all for one plan of all ranks",
                                     head.rank_count - 1));
    }
  }
  if (plans.size() != head.rank_count) {
    return wrong(plans, fmt::format("'plans' holds {} plans for {} ranks", plans.size(), head.rank_count));
  }
  for (const YAML::Node& node : plans) {
    TUTTI_ASSIGN(Plan plan, read_plan(node, head, file));
    file.plans.push_back(std::move(plan));
  }
  return {};
}

/// Reads the plan of the next rank, and appends the lines of its steps to `file`.
Result<Plan> Reader::read_plan(const YAML::Node& node, const Plan& head, PlanFile& file) {
  const auto due_rank = static_cast<uint32_t>(file.plans.size());
  TUTTI_TRY(check_map(node, "a plan", {"rank", "scratch", "steps", "strands"}, {"rank"}));
  TUTTI_TRY(check_version(node, "scratch"));
  Plan plan = head;
  TUTTI_TRY(number(node, "scratch", 0, kMaxChunks, plan.scratch_chunks));
  TUTTI_TRY(number(node, "rank", 0, head.rank_count - 1, plan.rank));
  if (plan.rank != due_rank) {
    return wrong(node["rank"], fmt::format("the plan of rank {} stands where rank {}'s is due", plan.rank, due_rank));
  }
  TUTTI_TRY(read_body(node, plan, file.lines.emplace_back()));
  Result<Plan> canonical = copy(plan.view());
  if (!canonical.ok()) return wrong(node, canonical.status().text());
  return canonical;
}

/// Reads the plan of rank 0, and makes the plans of all ranks from it.
Status Reader::read_images(const YAML::Node& node, const Plan& head, PlanFile& file) {
  TUTTI_TRY(check_version(node, "rank"));
  TUTTI_TRY(check_map(node, "a plan of all ranks",
                      {"rank", "chunk_shift", "scratch_shift", "scratch", "steps", "strands"}, {"rank"}));
  if (has_root(head.collective)) return wrong(node["rank"], "'rank: all' needs a collective without a root");
  if (head.rank_count > kMaxImages) {
    return wrong(node["rank"], fmt::format("'rank: all' stands for up to {} ranks", kMaxImages));
  }
  Plan plan = head;
  TUTTI_TRY(number(node, "scratch", 0, kMaxChunks, plan.scratch_chunks));
  uint32_t chunk_shift = 0;
  uint32_t scratch_shift = 0;
  TUTTI_TRY(number(node, "chunk_shift", 0, kMaxChunks, chunk_shift));
  TUTTI_TRY(number(node, "scratch_shift", 0, kMaxChunks, scratch_shift));
  const Result<Rotation> rotation = rotation_of(plan, chunk_shift, scratch_shift);
  if (!rotation.ok()) return wrong(node, rotation.status().text());
  TUTTI_TRY(read_body(node, plan, file.lines.emplace_back()));
  const Result<Plan> zero = copy(plan.view());
  if (!zero.ok()) return wrong(node, zero.status().text());
  if ((zero->steps.size() + zero->peers.size()) * head.rank_count > kMaxFileEntries) {
    return wrong(node, fmt::format("the plans of all ranks have more than {} steps and peers", kMaxFileEntries));
  }
  file.plans.reserve(head.rank_count);
  for (uint32_t rank = 0; rank < head.rank_count; ++rank) {
    Result<Plan> moved = image(*rotation, *zero, rank);
    if (!moved.ok()) return wrong(node, moved.status().with_context(fmt::format("rank {}", rank)).text());
    file.plans.push_back(*std::move(moved));
  }
  return {};
}

/// Reads the steps of a plan, or its strands.
Status Reader::read_body(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines) {
  TUTTI_TRY(check_version(node, "strands"));
  const YAML::Node strands = node["strands"];
  if (!strands.IsDefined()) {
    if (!node["steps"].IsDefined()) return wrong(node, "a plan lacks the key 'steps'");
    return read_steps(node["steps"], plan, lines);
  }
  if (node["steps"].IsDefined()) return wrong(strands, "'strands' stands beside 'steps'");
  in_strand_ = true;
  marks_.clear();
  TUTTI_TRY(read_strands(strands, plan, lines));
  in_strand_ = false;
  std::optional<uint32_t> at;
  const Status valid = validate_strands(plan.view(), &at);
  if (valid.ok()) return {};
  return at ? wrong(marks_[*at], valid.text()) : wrong(strands, valid.text());
}

Status Reader::read_strands(const YAML::Node& strands, Plan& plan, std::vector<uint32_t>& lines) {
  TUTTI_TRY(check_list(strands, "strands"));
  if (strands.size() == 0 || strands.size() > kMaxStrands) {
    return wrong(strands, fmt::format("'strands' holds {} strands; allowed: 1 to {}", strands.size(), kMaxStrands));
  }
  for (const YAML::Node& node : strands) {
    TUTTI_TRY(check_map(node, "a strand", {"steps"}, {"steps"}));
    const auto first = static_cast<uint32_t>(plan.steps.size());
    TUTTI_TRY(read_steps(node["steps"], plan, lines));
    const uint32_t count = static_cast<uint32_t>(plan.steps.size()) - first;
    if (count == 0) return wrong(node["steps"], "'steps' of a strand is empty");
    plan.strands.push_back({first, count});
  }
  return {};
}

Status Reader::read_steps(const YAML::Node& steps, Plan& plan, std::vector<uint32_t>& lines) {
  TUTTI_TRY(check_list(steps, "steps"));
  for (const YAML::Node& node : steps) {
    const bool repeats = node.IsMap() && node["repeat"].IsDefined();
    TUTTI_TRY(repeats ? read_repeat(node, plan, lines) : append_step(node, plan, lines));
    if (repeats) continue;
    // Checked against the peers of this step alone, which are the last ones.
    const auto last = static_cast<uint32_t>(plan.steps.size() - 1);
    if (Status valid = validate_step(plan.view(), last); !valid.ok()) return wrong(node, valid.text());
  }
  return {};
}

Status Reader::read_repeat(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines) {
  TUTTI_TRY(check_version(node, "repeat"));
  TUTTI_TRY(check_map(node, "a repeat", {"repeat", "steps"}, {"repeat", "steps"}));
  tutti_plan_repeat repeat = {static_cast<uint32_t>(plan.steps.size()), 0, 0, 0};
  TUTTI_ASSIGN(repeat.rounds, number(node["repeat"], "repeat", 1, kMaxSteps));
  const YAML::Node steps = node["steps"];
  TUTTI_TRY(check_list(steps, "steps"));
  in_repeat_ = true;
  for (const YAML::Node& step : steps) TUTTI_TRY(append_step(step, plan, lines));
  in_repeat_ = false;
  repeat.step_count = static_cast<uint32_t>(plan.steps.size()) - repeat.first_step;
  if (repeat.step_count == 0) return wrong(steps, "'steps' of a repeat is empty");
  if (uint64_t{repeat.rounds} * repeat.step_count > kMaxSteps) {
    return wrong(
        node, fmt::format("{} rounds of {} steps are more than {} steps", repeat.rounds, repeat.step_count, kMaxSteps));
  }
  plan.repeats.push_back(repeat);
  for (uint32_t i = 0; i < repeat.step_count; ++i) {
    if (Status valid = validate_step(plan.view(), repeat.first_step + i); !valid.ok()) {
      return wrong(steps[i], valid.text());
    }
  }
  return {};
}

Status Reader::append_step(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines) {
  if (++steps_ > kMaxSteps) return wrong(node, fmt::format("the file holds more than {} steps", kMaxSteps));
  if (in_repeat_ && node.IsMap() && node["repeat"].IsDefined()) {
    return wrong(node["repeat"], "a repeat stands in a repeat");
  }
  TUTTI_TRY(read_step(node, plan));
  if (in_strand_) marks_.push_back(node.Mark());
  lines.push_back(static_cast<uint32_t>(node.Mark().line + 1));
  return {};
}

Result<PlanFile> parse_file(std::string_view text, const std::string& name) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    return Reader(name).read(root);
  } catch (const YAML::Exception& error) {
    return Status(Code::kConfig,
                  fmt::format("{}:{}:{}: {}", name, error.mark.line + 1, error.mark.column + 1, error.msg));
  }
}

Result<PlanFile> read_file(const std::filesystem::path& path) {
  TUTTI_ASSIGN(const std::string text,
               base::read_text(path, fmt::format("the plan file {}", path.string()), kMaxFileBytes + 1));
  if (text.size() > kMaxFileBytes) {
    return Status(Code::kConfig,
                  fmt::format("{}: is larger than {} MiB; repeat steps and derive ranks in place of lists",
                              path.string(), kMaxFileBytes >> 20));
  }
  return parse_file(text, path.string());
}

}  // namespace tutti::program
