// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "config/value.h"
#include "program/file/affine.h"
#include "program/file/file.h"
#include "program/verify/rotation.h"

namespace tutti::program {
namespace {

/// Limits the memory that a file can make the reader allocate.
constexpr size_t kMaxFilePeers = size_t{1} << 24;
constexpr size_t kMaxFileChunks = size_t{1} << 22;  // of steps with several
constexpr uint32_t kMaxImages = 1u << 16;           // ranks of a file with one plan for all

/// Reads one document. Every failure names its place.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Result<PlanFile> read(const YAML::Node& root);

 private:
  using Keys = std::initializer_list<std::string_view>;

  Status wrong(const YAML::Node& node, std::string_view what) const;
  Status check_map(const YAML::Node& node, std::string_view what, Keys allowed, Keys required) const;
  Status check_list(const YAML::Node& node, std::string_view key) const;
  Result<std::string> text(const YAML::Node& node, std::string_view key) const;
  Result<uint32_t> number(const YAML::Node& node, std::string_view key, uint64_t least, uint64_t most) const;
  Status number(const YAML::Node& map, const char* key, uint64_t least, uint64_t most, uint32_t& into) const;
  Result<bool> truth(const YAML::Node& node, std::string_view key) const;

  Status read_version(const YAML::Node& root);
  Status check_version(const YAML::Node& map, const char* key) const;
  Result<Plan> read_head(const YAML::Node& root);
  Status read_purpose(const YAML::Node& root, Purpose& purpose) const;
  Status read_size(const YAML::Node& root, const char* key, uint64_t& into) const;
  Status read_plans(const YAML::Node& plans, const Plan& head, PlanFile& file);
  Result<Plan> read_plan(const YAML::Node& node, const Plan& head, PlanFile& file);
  Status read_images(const YAML::Node& node, const Plan& head, PlanFile& file);
  Status read_steps(const YAML::Node& steps, Plan& plan, std::vector<uint32_t>& lines);
  Status read_repeat(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines);
  Status append_step(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines);
  Status read_step(const YAML::Node& node, Plan& plan);
  Result<Affine> affine(const YAML::Node& node, std::string_view text, std::string_view key) const;
  Result<Affine> read_number(const YAML::Node& node, std::string_view key, uint64_t most) const;
  Status read_growth(const YAML::Node& node, std::string_view key, int64_t growth, uint32_t modulus,
                     uint32_t& into) const;
  struct Place {
    uint8_t buffer = TUTTI_BUFFER_NONE;
    Affine chunk;
  };
  Result<Place> read_place(const YAML::Node& node, const char* key) const;
  struct Side {
    const char* plain;    ///< key of a list of ranks
    const char* chunked;  ///< key of a list of ranks with chunks
    uint8_t flag;         ///< that `chunked` sets
  };
  struct Peers {
    uint16_t begin = 0;
    uint16_t count = 0;
    int64_t rank_growth = 0;
    int64_t chunk_growth = 0;
    bool is_chunked = false;
  };
  Result<Peers> read_peers(const YAML::Node& step, const Side& side, Plan& plan);
  Status read_gather_to(const YAML::Node& step, tutti_plan_step& into) const;
  Result<tutti_plan_range> read_range(const YAML::Node& node, const tutti_plan_step& step);
  struct Peer {
    Affine rank;
    Affine chunk;
  };
  Result<Peer> read_peer(const YAML::Node& node, bool chunked) const;

  const std::string& name_;
  uint32_t version_ = kFirstPlanFileVersion;
  uint32_t longest_message_ = 1;  ///< in chunks, of the steps so far
  size_t chunks_ = 0;
  size_t steps_ = 0;
  size_t peers_ = 0;
  bool in_repeat_ = false;  ///< numbers may grow
};

Status Reader::wrong(const YAML::Node& node, std::string_view what) const {
  const YAML::Mark mark = node.Mark();
  return {Code::kConfig, fmt::format("{}:{}:{}: {}", name_, mark.line + 1, mark.column + 1, what)};
}

Status Reader::check_map(const YAML::Node& node, std::string_view what, Keys allowed, Keys required) const {
  if (!node.IsMap()) return wrong(node, fmt::format("{} must be a map of keys to values", what));
  std::vector<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return wrong(entry.first, "a key must be a word");
    const std::string& key = entry.first.Scalar();
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return wrong(entry.first,
                   fmt::format("unknown key '{}'; allowed in {}: {}", key, what, fmt::join(allowed, ", ")));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return wrong(entry.first, fmt::format("key '{}' stands there twice", key));
    }
    seen.push_back(key);
  }
  for (std::string_view key : required) {
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
      return wrong(node, fmt::format("{} lacks the key '{}'", what, key));
    }
  }
  return {};
}

Status Reader::check_list(const YAML::Node& node, std::string_view key) const {
  if (node.IsSequence()) return {};
  return wrong(node, fmt::format("'{}' must be a list", key));
}

Result<std::string> Reader::text(const YAML::Node& node, std::string_view key) const {
  if (!node.IsScalar()) return wrong(node, fmt::format("'{}' must be text", key));
  const std::string& value = node.Scalar();
  if (std::any_of(value.begin(), value.end(), [](char c) { return c < ' ' || c > '~'; }))
    return wrong(node, fmt::format("'{}' must be printable ASCII text", key));
  return value;
}

Result<uint32_t> Reader::number(const YAML::Node& node, std::string_view key, uint64_t least, uint64_t most) const {
  const bool quoted = node.IsScalar() && node.Tag() == "!";
  uint64_t value = 0;
  if (node.IsScalar() && !quoted) {
    const std::string& digits = node.Scalar();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = end == digits.data() + digits.size() && !digits.empty() && error != std::errc::invalid_argument;
    if (whole && error == std::errc() && value >= least && value <= most) return static_cast<uint32_t>(value);
    if (whole) return wrong(node, fmt::format("'{}' is {}; allowed: {} to {}", key, digits, least, most));
  }
  return wrong(node, fmt::format("'{}' must be a whole number from {} to {}", key, least, most));
}

/// Reads a number that may be missing, in which case `into` stays.
Status Reader::number(const YAML::Node& map, const char* key, uint64_t least, uint64_t most, uint32_t& into) const {
  const YAML::Node node = map[key];
  if (!node.IsDefined()) return {};
  TUTTI_ASSIGN(into, number(node, key, least, most));
  return {};
}

Result<bool> Reader::truth(const YAML::Node& node, std::string_view key) const {
  if (node.IsScalar() && node.Scalar() == "true") return true;
  if (node.IsScalar() && node.Scalar() == "false") return false;
  return wrong(node, fmt::format("'{}' must be true or false", key));
}

Result<Plan> Reader::read_head(const YAML::Node& root) {
  TUTTI_TRY(
      check_map(root, "a plan file",
                {"version", "collective", "algorithm", "variant", "ranks", "root", "channel", "chunks", "input_blocks",
                 "output_blocks", "scratch", "message_chunks", "min_size", "max_size", "data_types", "plans"},
                {"version", "collective", "algorithm", "ranks", "chunks", "plans"}));
  TUTTI_TRY(read_version(root));
  Plan head;
  TUTTI_ASSIGN(const std::string collective, text(root["collective"], "collective"));
  const std::optional<Collective> known = collective_from(collective);
  if (!known) {
    std::vector<std::string_view> names;
    for (uint32_t i = 0; i < kCollectiveCount; ++i) names.push_back(to_string(static_cast<Collective>(i)));
    return wrong(root["collective"],
                 fmt::format("unknown collective '{}'; allowed: {}", collective, fmt::join(names, ", ")));
  }
  head.collective = *known;
  TUTTI_TRY(number(root, "ranks", 1, kMaxChunks, head.rank_count));
  if (root["root"].IsDefined() && !has_root(head.collective)) {
    return wrong(root["root"], fmt::format("'root': {} has no root", collective));
  }
  TUTTI_TRY(number(root, "root", 0, head.rank_count - 1, head.root));
  TUTTI_TRY(number(root, "channel", 0, UINT32_MAX, head.channel));
  const Blocks blocks = blocks_of(head.collective, head.rank_count);
  head.input_blocks = blocks.input;
  head.output_blocks = blocks.output;
  TUTTI_TRY(number(root, "chunks", 1, kMaxChunks, head.chunks));
  TUTTI_TRY(number(root, "scratch", 0, kMaxChunks, head.scratch_chunks));
  head.message_chunks = kMaxMessageChunks;  // until all steps are known
  TUTTI_TRY(number(root, "message_chunks", 1, kMaxMessageChunks, head.message_chunks));
  TUTTI_TRY(number(root, "input_blocks", 1, head.rank_count, head.input_blocks));
  TUTTI_TRY(number(root, "output_blocks", 1, head.rank_count, head.output_blocks));
  if (Status valid = validate_head(head.view()); !valid.ok()) return wrong(root, valid.text());
  return head;
}

/// Reads a size that may be missing, in which case `into` stays.
Status Reader::read_size(const YAML::Node& root, const char* key, uint64_t& into) const {
  const YAML::Node node = root[key];
  if (!node.IsDefined()) return {};
  TUTTI_ASSIGN(const std::string digits, text(node, key));
  const config::Key size{key, config::Type::kSize, "", "", {}, 0};
  const auto value = config::parse(size, digits);
  if (!value.ok()) return wrong(node, fmt::format("'{}': {}", key, value.status().text()));
  into = static_cast<uint64_t>(value->integer);
  return {};
}

Status Reader::read_purpose(const YAML::Node& root, Purpose& purpose) const {
  TUTTI_TRY(read_size(root, "min_size", purpose.min_size));
  TUTTI_TRY(read_size(root, "max_size", purpose.max_size));
  if (purpose.min_size > purpose.max_size) return wrong(root["min_size"], "'min_size' is larger than 'max_size'");
  const YAML::Node types = root["data_types"];
  if (!types.IsDefined()) return {};
  TUTTI_TRY(check_list(types, "data_types"));
  for (const YAML::Node& node : types) {
    TUTTI_ASSIGN(const std::string name, text(node, "data_types"));
    const std::optional<DataType> type = data_type_from(name);
    if (!type) {
      std::vector<std::string_view> names;
      for (uint32_t i = 0; i < kDataTypeCount; ++i) names.push_back(to_string(static_cast<DataType>(i)));
      return wrong(node, fmt::format("unknown data type '{}'; allowed: {}", name, fmt::join(names, ", ")));
    }
    const bool twice =
        std::find(purpose.data_types.begin(), purpose.data_types.end(), *type) != purpose.data_types.end();
    if (twice) return wrong(node, fmt::format("'data_types' names {} twice", name));
    purpose.data_types.push_back(*type);
  }
  return purpose.data_types.empty() ? wrong(types, "'data_types' is empty; leave the key out for all types") : Status();
}

/// Keys of later versions are refused in files of earlier versions.
Status Reader::read_version(const YAML::Node& root) {
  TUTTI_ASSIGN(version_, number(root["version"], "version", kFirstPlanFileVersion, kPlanFileVersion));
  for (const char* key : {"min_size", "max_size", "data_types", "scratch", "message_chunks"}) {
    TUTTI_TRY(check_version(root, key));
  }
  return {};
}

/// `key` of a map is allowed from version 2 on.
Status Reader::check_version(const YAML::Node& map, const char* key) const {
  const YAML::Node node = map[key];
  if (!node.IsDefined() || version_ >= 2) return {};
  return wrong(node, fmt::format("'{}' needs 'version: 2'", key));
}

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
  const YAML::Node rank = plans.size() == 1 && plans[0].IsMap() ? plans[0]["rank"] : YAML::Node();
  if (rank.IsDefined() && rank.IsScalar() && rank.Scalar() == "all") return read_images(plans[0], head, file);
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
  TUTTI_TRY(check_map(node, "a plan", {"rank", "scratch", "steps"}, {"rank", "steps"}));
  TUTTI_TRY(check_version(node, "scratch"));
  Plan plan = head;
  TUTTI_TRY(number(node, "scratch", 0, kMaxChunks, plan.scratch_chunks));
  TUTTI_TRY(number(node, "rank", 0, head.rank_count - 1, plan.rank));
  if (plan.rank != due_rank) {
    return wrong(node["rank"], fmt::format("the plan of rank {} stands where rank {}'s is due", plan.rank, due_rank));
  }
  TUTTI_TRY(read_steps(node["steps"], plan, file.lines.emplace_back()));
  Result<Plan> canonical = copy(plan.view());
  if (!canonical.ok()) return wrong(node, canonical.status().text());
  return canonical;
}

/// Reads the plan of rank 0, and makes the plans of all ranks from it.
Status Reader::read_images(const YAML::Node& node, const Plan& head, PlanFile& file) {
  TUTTI_TRY(check_version(node, "rank"));
  TUTTI_TRY(check_map(node, "a plan of all ranks", {"rank", "chunk_shift", "scratch_shift", "scratch", "steps"},
                      {"rank", "steps"}));
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
  TUTTI_TRY(read_steps(node["steps"], plan, file.lines.emplace_back()));
  const Result<Plan> zero = copy(plan.view());
  if (!zero.ok()) return wrong(node, zero.status().text());
  if ((zero->steps.size() + zero->peers.size()) * head.rank_count > kMaxFilePeers) {
    return wrong(node, fmt::format("the plans of all ranks have more than {} steps and peers", kMaxFilePeers));
  }
  file.plans.reserve(head.rank_count);
  for (uint32_t rank = 0; rank < head.rank_count; ++rank) {
    Result<Plan> moved = image(*rotation, *zero, rank);
    if (!moved.ok()) return wrong(node, moved.status().with_context(fmt::format("rank {}", rank)).text());
    file.plans.push_back(*std::move(moved));
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
  lines.push_back(static_cast<uint32_t>(node.Mark().line + 1));
  return {};
}

/// Reads a number that may grow in a repeat.
Result<Affine> Reader::affine(const YAML::Node& node, std::string_view text, std::string_view key) const {
  const std::optional<Affine> number = parse_affine(text);
  if (!number)
    return wrong(node, fmt::format("'{}' must be a number or, in a repeat, grow like '3 + k' or '3 - 2k'", key));
  if (number->growth != 0 && !in_repeat_) return wrong(node, fmt::format("'{}' grows outside a repeat", key));
  return *number;
}

Status Reader::read_growth(const YAML::Node& node, std::string_view key, int64_t growth, uint32_t modulus,
                           uint32_t& into) const {
  into = 0;
  if (growth == 0) return {};
  const auto size = static_cast<int64_t>(modulus);
  if (growth >= size || growth <= -size) {
    return wrong(node, fmt::format("'{}' grows by {} in each round; allowed is less than {}", key, growth, modulus));
  }
  into = static_cast<uint32_t>(growth < 0 ? growth + size : growth);
  return {};
}

Status Reader::read_step(const YAML::Node& node, Plan& plan) {
  TUTTI_TRY(check_map(node, "a step",
                      {"own", "chunk", "recv", "gather", "gather_to", "to", "send", "scatter", "chunks", "own_stride",
                       "to_stride", "final"},
                      {}));
  for (const char* key : {"gather_to", "chunks", "own_stride", "to_stride"}) TUTTI_TRY(check_version(node, key));
  tutti_plan_step step = {};
  tutti_plan_growth growth = {};
  TUTTI_ASSIGN(const Place own, read_place(node, "own"));
  TUTTI_ASSIGN(const Place to, read_place(node, "to"));
  Affine source = own.chunk;
  step.source = own.buffer;
  step.destination = to.buffer;
  step.destination_chunk = to.chunk.first;
  if (step.destination == TUTTI_BUFFER_INPUT) {
    return wrong(node["to"], fmt::format("'to' must be an output{} chunk", version_ >= 2 ? " or scratch" : ""));
  }
  if (node["chunk"].IsDefined()) {
    if (node["own"].IsDefined()) return wrong(node["chunk"], "'chunk' stands beside 'own'");
    TUTTI_ASSIGN(source, read_number(node["chunk"], "chunk", kMaxChunks));
  }
  step.source_chunk = source.first;
  TUTTI_ASSIGN(const Peers recv, read_peers(node, {"recv", "gather", TUTTI_STEP_GATHER}, plan));
  TUTTI_ASSIGN(const Peers send, read_peers(node, {"send", "scatter", TUTTI_STEP_SCATTER}, plan));
  step.recv_begin = recv.begin;
  step.recv_count = recv.count;
  step.send_begin = send.begin;
  step.send_count = send.count;
  step.flags =
      static_cast<uint8_t>((recv.is_chunked ? TUTTI_STEP_GATHER : 0) | (send.is_chunked ? TUTTI_STEP_SCATTER : 0));
  if (node["final"].IsDefined()) {
    TUTTI_ASSIGN(const bool final, truth(node["final"], "final"));
    if (final) step.flags = static_cast<uint8_t>(step.flags | TUTTI_STEP_FINAL);
  }
  TUTTI_TRY(read_gather_to(node, step));
  TUTTI_TRY(read_growth(node, "own", source.growth, plan.chunks_of(step.source), growth.source_chunk));
  TUTTI_TRY(read_growth(node, "to", to.chunk.growth, plan.chunks_of(step.destination), growth.destination_chunk));
  TUTTI_TRY(read_growth(node, "recv", recv.rank_growth, plan.rank_count, growth.recv_rank));
  TUTTI_TRY(read_growth(node, "gather", recv.chunk_growth, plan.chunks_of(gather_buffer_of(step)), growth.recv_chunk));
  TUTTI_TRY(read_growth(node, "send", send.rank_growth, plan.rank_count, growth.send_rank));
  TUTTI_TRY(read_growth(node, "scatter", send.chunk_growth, plan.chunks_of(step.source), growth.send_chunk));
  TUTTI_ASSIGN(const tutti_plan_range range, read_range(node, step));
  plan.steps.push_back(step);
  plan.ranges.push_back(range);
  plan.growths.push_back(growth);
  return {};
}

Status Reader::read_gather_to(const YAML::Node& step, tutti_plan_step& into) const {
  const YAML::Node node = step["gather_to"];
  if (!node.IsDefined()) return {};
  TUTTI_ASSIGN(const std::string buffer, text(node, "gather_to"));
  if (buffer != "output" && buffer != "scratch") return wrong(node, "'gather_to' must be output or scratch");
  if ((into.flags & TUTTI_STEP_GATHER) == 0) return wrong(node, "'gather_to' stands in a step without 'gather'");
  into.gather_buffer = buffer == "scratch" ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT;
  return {};
}

/// Strides are 1 unless the file says otherwise, and 0 for buffers that the step does not use.
Result<tutti_plan_range> Reader::read_range(const YAML::Node& node, const tutti_plan_step& step) {
  tutti_plan_range range = kOneChunk;
  TUTTI_TRY(number(node, "chunks", 1, kMaxMessageChunks, range.count));
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0 && step.recv_count > 0;
  const bool writes = step.destination != TUTTI_BUFFER_NONE || gathers;
  if (range.count > 1) {
    range.source_stride = step.source != TUTTI_BUFFER_NONE || !writes ? 1 : 0;
    range.destination_stride = writes ? 1 : 0;
  }
  TUTTI_TRY(number(node, "own_stride", 0, kMaxChunks, range.source_stride));
  TUTTI_TRY(number(node, "to_stride", 0, kMaxChunks, range.destination_stride));
  longest_message_ = std::max(longest_message_, range.count);
  chunks_ += range.count > 1 ? range.count : 0;
  if (chunks_ <= kMaxFileChunks) return range;
  return wrong(node["chunks"], fmt::format("the steps of the file have more than {} chunks", kMaxFileChunks));
}

/// Reads "input 3", "output 3" or, from version 2 on, "scratch 3".
Result<Reader::Place> Reader::read_place(const YAML::Node& step, const char* key) const {
  const YAML::Node node = step[key];
  if (!node.IsDefined()) return Place();
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const size_t space = text.find(' ');
  const std::string_view word = std::string_view(text).substr(0, space);
  const std::string_view digits = space == std::string::npos ? "" : std::string_view(text).substr(space + 1);
  const auto chunk = parse_affine(digits);
  const bool scratch = word == "scratch" && version_ >= 2;
  if (!chunk || (word != "input" && word != "output" && !scratch)) {
    return wrong(node, fmt::format("'{}' must be 'input'{} 'output'{} and a chunk, for example 'input 3'", key,
                                   version_ >= 2 ? "," : " or", version_ >= 2 ? " or 'scratch'" : ""));
  }
  TUTTI_ASSIGN(const Affine number, affine(node, digits, key));
  const uint32_t buffer = scratch ? TUTTI_BUFFER_SCRATCH : word == "input" ? TUTTI_BUFFER_INPUT : TUTTI_BUFFER_OUTPUT;
  return Place{static_cast<uint8_t>(buffer), number};
}

/// Reads a number up to `most`, which may grow in a repeat.
Result<Affine> Reader::read_number(const YAML::Node& node, std::string_view key, uint64_t most) const {
  if (in_repeat_ && node.IsScalar() && node.Scalar().find('k') != std::string::npos) {
    return affine(node, node.Scalar(), key);
  }
  TUTTI_ASSIGN(const uint32_t plain, number(node, key, 0, most));
  return Affine{plain, 0};
}

/// Reads the peers of one side of a step.
Result<Reader::Peers> Reader::read_peers(const YAML::Node& step, const Side& side, Plan& plan) {
  Peers made;
  made.is_chunked = step[side.chunked].IsDefined();
  if (made.is_chunked && step[side.plain].IsDefined()) {
    return wrong(step[side.plain], fmt::format("'{}' stands beside '{}'", side.plain, side.chunked));
  }
  const char* key = made.is_chunked ? side.chunked : side.plain;
  const YAML::Node list = step[key];
  if (!list.IsDefined()) return made;
  TUTTI_TRY(check_list(list, key));
  std::vector<tutti_plan_peer> peers;
  for (const YAML::Node& node : list) {
    if (++peers_ > kMaxFilePeers) return wrong(node, fmt::format("the file names more than {} peers", kMaxFilePeers));
    TUTTI_ASSIGN(const Peer peer, read_peer(node, made.is_chunked));
    if (peers.empty()) {
      made.rank_growth = peer.rank.growth;
      made.chunk_growth = peer.chunk.growth;
    } else if (made.rank_growth != peer.rank.growth || made.chunk_growth != peer.chunk.growth) {
      return wrong(node, fmt::format("the peers in '{}' do not grow alike", key));
    }
    peers.push_back({peer.rank.first, peer.chunk.first});
  }
  const auto found = std::search(plan.peers.begin(), plan.peers.end(), peers.begin(), peers.end(),
                                 [](const auto& a, const auto& b) { return a.rank == b.rank && a.chunk == b.chunk; });
  if (peers.size() > UINT16_MAX || found - plan.peers.begin() > UINT16_MAX) {
    return wrong(list, fmt::format("the plan names more than {} different peers", UINT16_MAX));
  }
  made.begin = static_cast<uint16_t>(found - plan.peers.begin());
  made.count = static_cast<uint16_t>(peers.size());
  if (found == plan.peers.end()) plan.peers.insert(plan.peers.end(), peers.begin(), peers.end());
  return made;
}

Result<Reader::Peer> Reader::read_peer(const YAML::Node& node, bool chunked) const {
  Peer peer;
  if (!chunked) {
    TUTTI_ASSIGN(peer.rank, read_number(node, "rank", UINT32_MAX));
    return peer;
  }
  TUTTI_TRY(check_map(node, "a peer", {"rank", "chunk"}, {"rank", "chunk"}));
  TUTTI_ASSIGN(peer.rank, read_number(node["rank"], "rank", UINT32_MAX));
  TUTTI_ASSIGN(peer.chunk, read_number(node["chunk"], "chunk", UINT32_MAX));
  return peer;
}

}  // namespace

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
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Status(Code::kNotFound, fmt::format("{}: cannot be opened", path.string()));
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream && !stream.eof()) return Status(Code::kSystem, fmt::format("{}: cannot be read", path.string()));
  return parse_file(text.str(), path.string());
}

}  // namespace tutti::program
