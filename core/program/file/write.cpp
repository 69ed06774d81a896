// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "config/value.h"
#include "program/file/affine.h"
#include "program/file/file.h"
#include "program/verify/rotation.h"

namespace tutti::program {
namespace {

using Json = nlohmann::ordered_json;

/// A number, or the text of a number that grows.
Json number(uint32_t first, uint32_t growth, uint32_t modulus) {
  if (growth == 0) return first;
  return affine_text(first, growth, modulus);
}

/// How the peers of one side grow.
struct PeerGrowth {
  uint32_t rank;
  uint32_t ranks;
  uint32_t chunk;
  uint32_t chunks;
};

Json ranks_of(std::span<const tutti_plan_peer> peers, const PeerGrowth& growth) {
  Json list = Json::array();
  for (const tutti_plan_peer& peer : peers) list.push_back(number(peer.rank, growth.rank, growth.ranks));
  return list;
}

Json ranks_and_chunks_of(std::span<const tutti_plan_peer> peers, const PeerGrowth& growth) {
  Json list = Json::array();
  for (const tutti_plan_peer& peer : peers) {
    list.push_back({{"rank", number(peer.rank, growth.rank, growth.ranks)},
                    {"chunk", number(peer.chunk, growth.chunk, growth.chunks)}});
  }
  return list;
}

std::string place(uint8_t buffer, uint32_t chunk, uint32_t growth, uint32_t chunks) {
  const std::string_view name = buffer == TUTTI_BUFFER_SCRATCH ? "scratch"
                                : buffer == TUTTI_BUFFER_INPUT ? "input"
                                                               : "output";
  return fmt::format("{} {}", name, affine_text(chunk, growth, chunks));
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
  const tutti_plan_growth growth = plan.growth(step);
  const uint32_t sources = plan.chunks_of(step.source);
  const PeerGrowth recv{growth.recv_rank, plan.rank_count, growth.recv_chunk, plan.chunks_of(gather_buffer_of(step))};
  const PeerGrowth send{growth.send_rank, plan.rank_count, growth.send_chunk, sources};
  Json json = Json::object();
  if (gather) json["gather"] = ranks_and_chunks_of(plan.recv(step), recv);
  if (step.gather_buffer == TUTTI_BUFFER_SCRATCH) json["gather_to"] = "scratch";
  if (!gather && step.recv_count > 0) json["recv"] = ranks_of(plan.recv(step), recv);
  if (step.source != TUTTI_BUFFER_NONE)
    json["own"] = place(step.source, step.source_chunk, growth.source_chunk, sources);
  if (step.source == TUTTI_BUFFER_NONE && (step.source_chunk != 0 || growth.source_chunk != 0)) {
    json["chunk"] = number(step.source_chunk, growth.source_chunk, plan.chunks);
  }
  if (step.destination != TUTTI_BUFFER_NONE) {
    json["to"] =
        place(step.destination, step.destination_chunk, growth.destination_chunk, plan.chunks_of(step.destination));
  }
  if (scatter) json["scatter"] = ranks_and_chunks_of(plan.send(step), send);
  if (!scatter && step.send_count > 0) json["send"] = ranks_of(plan.send(step), send);
  add_range(plan.range(step), json);
  if ((step.flags & TUTTI_STEP_FINAL) != 0) json["final"] = true;
  for (const tutti_plan_wait& wait : plan.waits_of(static_cast<uint32_t>(&step - plan.steps.data()))) {
    json["after"].push_back(wait.after);
  }
  return json;
}

/// The steps from `next` up to `end`.
Json steps_of(const Plan& plan, size_t next, size_t end) {
  Json steps = Json::array();
  for (const tutti_plan_repeat& repeat : plan.repeats) {
    if (repeat.first_step < next || repeat.first_step >= end) continue;
    for (; next < repeat.first_step; ++next) steps.push_back(step_of(plan, plan.steps[next]));
    Json body = Json::array();
    for (uint32_t i = 0; i < repeat.step_count; ++i, ++next) body.push_back(step_of(plan, plan.steps[next]));
    steps.push_back({{"repeat", repeat.rounds}, {"steps", std::move(body)}});
  }
  for (; next < end; ++next) steps.push_back(step_of(plan, plan.steps[next]));
  return steps;
}

Json strands_of(const Plan& plan) {
  Json strands = Json::array();
  for (const tutti_plan_strand& strand : plan.strands) {
    strands.push_back({{"steps", steps_of(plan, strand.first_step, strand.first_step + strand.step_count)}});
  }
  return strands;
}

Json plan_of(const Plan& plan) {
  Json json = {{"rank", plan.rank}};
  if (plan.scratch_chunks > 0) json["scratch"] = plan.scratch_chunks;
  if (plan.strands.empty()) {
    json["steps"] = steps_of(plan, 0, plan.steps.size());
  } else {
    json["strands"] = strands_of(plan);
  }
  return json;
}

/// The rotation that makes all plans of a file from the first; nothing if there is none. Plans without repeats are
/// written one by one.
std::optional<Rotation> rotation_of(const PlanFile& file) {
  if (file.plans.size() < 2 || file.plans[0].repeats.empty()) return {};
  const auto rotation = find_rotation(file.plans[0], file.plans[1]);
  if (!rotation) return {};
  for (uint32_t rank = 1; rank < file.plans.size(); ++rank) {
    const auto made = image(*rotation, file.plans[0], rank);
    if (!made.ok() || !(*made == file.plans[rank])) return {};
  }
  return rotation;
}

Json plan_of_all(const Plan& zero, const Rotation& rotation) {
  Json json = plan_of(zero);
  json["rank"] = "all";
  Json made = {{"rank", "all"}};
  if (rotation.chunk_shift != 0) made["chunk_shift"] = rotation.chunk_shift;
  if (rotation.scratch_shift != 0) made["scratch_shift"] = rotation.scratch_shift;
  for (const auto& [key, value] : json.items()) made[key] = value;
  return made;
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
  if (const auto rotation = rotation_of(file)) {
    json["plans"].push_back(plan_of_all(file.plans[0], *rotation));
    return json;
  }
  for (const Plan& plan : file.plans) json["plans"].push_back(plan_of(plan));
  return json;
}

/// Maps that hold no "steps", "strands" or "plans" stand on one line.
void emit(YAML::Emitter& out, const Json& json) {
  if (json.is_object()) {
    const bool open = json.contains("steps") || json.contains("strands") || json.contains("plans");
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
