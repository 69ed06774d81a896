// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/value.h"
#include "program/file/file.h"

namespace tutti::program {
namespace {

using Json = nlohmann::ordered_json;

Json ranks_of(std::span<const tutti_plan_peer> peers) {
  Json list = Json::array();
  for (const tutti_plan_peer& peer : peers) list.push_back(peer.rank);
  return list;
}

Json ranks_and_chunks_of(std::span<const tutti_plan_peer> peers) {
  Json list = Json::array();
  for (const tutti_plan_peer& peer : peers) list.push_back({{"rank", peer.rank}, {"chunk", peer.chunk}});
  return list;
}

std::string place(uint8_t buffer, uint32_t chunk) {
  if (buffer == TUTTI_BUFFER_SCRATCH) return fmt::format("scratch {}", chunk);
  return fmt::format("{} {}", buffer == TUTTI_BUFFER_INPUT ? "input" : "output", chunk);
}

/// The keys of a step with several chunks. A stride of 1 is the default.
void add_range(const tutti_plan_range& range, Json& json) {
  if (range.count == 1) return;
  json["chunks"] = range.count;
  if (range.source_stride > 1) json["own_stride"] = range.source_stride;
  if (range.destination_stride > 1) json["to_stride"] = range.destination_stride;
}

Json step_of(const Plan& plan, const tutti_plan_step& step) {
  const bool gather = (step.flags & TUTTI_STEP_GATHER) != 0;
  const bool scatter = (step.flags & TUTTI_STEP_SCATTER) != 0;
  Json json = Json::object();
  if (gather) json["gather"] = ranks_and_chunks_of(plan.recv(step));
  if (step.gather_buffer == TUTTI_BUFFER_SCRATCH) json["gather_to"] = "scratch";
  if (!gather && step.recv_count > 0) json["recv"] = ranks_of(plan.recv(step));
  if (step.source != TUTTI_BUFFER_NONE) json["own"] = place(step.source, step.source_chunk);
  if (step.source == TUTTI_BUFFER_NONE && step.source_chunk != 0) json["chunk"] = step.source_chunk;
  if (step.destination != TUTTI_BUFFER_NONE) json["to"] = place(step.destination, step.destination_chunk);
  if (scatter) json["scatter"] = ranks_and_chunks_of(plan.send(step));
  if (!scatter && step.send_count > 0) json["send"] = ranks_of(plan.send(step));
  add_range(plan.range(step), json);
  if ((step.flags & TUTTI_STEP_FINAL) != 0) json["final"] = true;
  return json;
}

Json plan_of(const Plan& plan) {
  Json json = {{"rank", plan.rank}};
  if (plan.scratch_chunks > 0) json["scratch"] = plan.scratch_chunks;
  json["steps"] = Json::array();
  for (const tutti_plan_step& step : plan.steps) json["steps"].push_back(step_of(plan, step));
  return json;
}

uint32_t longest_message(const PlanFile& file) {
  uint32_t most = 1;
  for (const Plan& plan : file.plans) {
    for (const tutti_plan_range& range : plan.ranges) most = std::max(most, range.count);
  }
  return most;
}

/// The first version that has all that the file uses.
uint32_t version_of(const PlanFile& file) {
  const auto is_new = [](const Plan& plan) { return !beyond_version_1(plan).empty() || plan.message_chunks > 1; };
  const bool any = std::any_of(file.plans.begin(), file.plans.end(), is_new);
  return file.purpose == Purpose{} && !any ? kFirstPlanFileVersion : kPlanFileVersion;
}

std::string size_text(uint64_t bytes) {
  config::Value value;
  value.integer = static_cast<int64_t>(bytes);
  return config::format({"size", config::Type::kSize, "", "", {}}, value);
}

void add_purpose(const Purpose& purpose, Json& json) {
  if (purpose.min_size != 0) json["min_size"] = size_text(purpose.min_size);
  if (purpose.max_size != UINT64_MAX) json["max_size"] = size_text(purpose.max_size);
  for (const DataType type : purpose.data_types) json["data_types"].push_back(std::string(to_string(type)));
}

Json document_of(const PlanFile& file) {
  const Plan first = file.plans.empty() ? Plan{} : file.plans[0];
  const Blocks usual = blocks_of(first.collective, first.rank_count);
  Json json = {{"version", version_of(file)},
               {"collective", std::string(to_string(first.collective))},
               {"algorithm", file.algorithm}};
  if (!file.variant.empty()) json["variant"] = file.variant;
  json["ranks"] = first.rank_count;
  if (has_root(first.collective)) json["root"] = first.root;
  json["channel"] = first.channel;
  json["chunks"] = first.chunks;
  if (first.input_blocks != usual.input) json["input_blocks"] = first.input_blocks;
  if (first.output_blocks != usual.output) json["output_blocks"] = first.output_blocks;
  if (first.message_chunks > longest_message(file)) json["message_chunks"] = first.message_chunks;
  add_purpose(file.purpose, json);
  json["plans"] = Json::array();
  for (const Plan& plan : file.plans) json["plans"].push_back(plan_of(plan));
  return json;
}

/// Maps that hold no "steps" or "plans" stand on one line.
void emit(YAML::Emitter& out, const Json& json) {
  if (json.is_object()) {
    const bool open = json.contains("steps") || json.contains("plans");
    out << (open ? YAML::Block : YAML::Flow) << YAML::BeginMap;
    for (const auto& [key, value] : json.items()) {
      out << YAML::Key << key << YAML::Value;
      emit(out, value);
    }
    out << YAML::EndMap;
  } else if (json.is_array()) {
    const bool open = !json.empty() && json[0].is_object() && !json[0].contains("chunk");
    out << (open ? YAML::Block : YAML::Flow) << YAML::BeginSeq;
    for (const Json& value : json) emit(out, value);
    out << YAML::EndSeq;
  } else if (json.is_string()) {
    out << json.get<std::string>();
  } else if (json.is_boolean()) {
    out << json.get<bool>();
  } else {
    out << json.get<uint64_t>();
  }
}

}  // namespace

std::string to_yaml(const PlanFile& file) {
  YAML::Emitter out;
  emit(out, document_of(file));
  return std::string(out.c_str()) + '\n';
}

std::string to_json(const PlanFile& file) {
  return document_of(file).dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Status write_file(const PlanFile& file, const std::filesystem::path& path) {
  return base::write_file(path, path.extension() == ".json" ? to_json(file) : to_yaml(file));
}

}  // namespace tutti::program
