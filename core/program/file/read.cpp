// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "config/value.h"
#include "program/file/file.h"

namespace tutti::program {
namespace {

/// Limits the memory that a file can make the reader allocate.
constexpr size_t kMaxFilePeers = size_t{1} << 24;
constexpr size_t kMaxFileChunks = size_t{1} << 22;  // of steps with several

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
  Result<Plan> read_plan(const YAML::Node& node, const Plan& head, PlanFile& file);
  Status read_step(const YAML::Node& node, Plan& plan);
  Status read_place(const YAML::Node& node, const char* key, uint8_t& buffer, uint32_t& chunk) const;
  Status read_peers(const YAML::Node& step, const char* plain, const char* chunked, uint8_t flag, Plan& plan,
                    uint16_t& begin, uint16_t& count, uint8_t& flags);
  Status read_gather_to(const YAML::Node& step, tutti_plan_step& into) const;
  Result<tutti_plan_range> read_range(const YAML::Node& node, const tutti_plan_step& step);
  Result<tutti_plan_peer> read_peer(const YAML::Node& node, bool chunked) const;

  const std::string& name_;
  uint32_t version_ = kFirstPlanFileVersion;
  uint32_t longest_message_ = 1;  ///< in chunks, of the steps so far
  size_t chunks_ = 0;
  size_t steps_ = 0;
  size_t peers_ = 0;
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
  if (plans.size() != head.rank_count) {
    return wrong(plans, fmt::format("'plans' holds {} plans for {} ranks", plans.size(), head.rank_count));
  }
  for (const YAML::Node& node : plans) {
    TUTTI_ASSIGN(Plan plan, read_plan(node, head, file));
    file.plans.push_back(std::move(plan));
  }
  if (root["message_chunks"].IsDefined()) return file;
  for (Plan& plan : file.plans) plan.message_chunks = longest_message_;
  return file;
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
  const YAML::Node steps = node["steps"];
  TUTTI_TRY(check_list(steps, "steps"));
  std::vector<uint32_t>& lines = file.lines.emplace_back();
  for (const YAML::Node& step : steps) {
    if (++steps_ > kMaxSteps) return wrong(step, fmt::format("the file holds more than {} steps", kMaxSteps));
    TUTTI_TRY(read_step(step, plan));
    lines.push_back(static_cast<uint32_t>(step.Mark().line + 1));
    // Checked against the peers of this step alone, which are the last ones.
    const auto last = static_cast<uint32_t>(plan.steps.size() - 1);
    if (Status valid = validate_step(plan.view(), last); !valid.ok()) return wrong(step, valid.text());
  }
  Result<Plan> canonical = copy(plan.view());
  if (!canonical.ok()) return wrong(node, canonical.status().text());
  return canonical;
}

Status Reader::read_step(const YAML::Node& node, Plan& plan) {
  TUTTI_TRY(check_map(node, "a step",
                      {"own", "chunk", "recv", "gather", "gather_to", "to", "send", "scatter", "chunks", "own_stride",
                       "to_stride", "final"},
                      {}));
  for (const char* key : {"gather_to", "chunks", "own_stride", "to_stride"}) TUTTI_TRY(check_version(node, key));
  tutti_plan_step step = {};
  TUTTI_TRY(read_place(node, "own", step.source, step.source_chunk));
  TUTTI_TRY(read_place(node, "to", step.destination, step.destination_chunk));
  if (step.destination == TUTTI_BUFFER_INPUT) {
    return wrong(node["to"], fmt::format("'to' must be an output{} chunk", version_ >= 2 ? " or scratch" : ""));
  }
  if (node["own"].IsDefined() && node["chunk"].IsDefined()) return wrong(node["chunk"], "'chunk' stands beside 'own'");
  TUTTI_TRY(number(node, "chunk", 0, kMaxChunks, step.source_chunk));
  TUTTI_TRY(read_peers(node, "recv", "gather", TUTTI_STEP_GATHER, plan, step.recv_begin, step.recv_count, step.flags));
  TUTTI_TRY(
      read_peers(node, "send", "scatter", TUTTI_STEP_SCATTER, plan, step.send_begin, step.send_count, step.flags));
  if (node["final"].IsDefined()) {
    TUTTI_ASSIGN(const bool final, truth(node["final"], "final"));
    if (final) step.flags = static_cast<uint8_t>(step.flags | TUTTI_STEP_FINAL);
  }
  TUTTI_TRY(read_gather_to(node, step));
  TUTTI_ASSIGN(const tutti_plan_range range, read_range(node, step));
  plan.steps.push_back(step);
  plan.ranges.push_back(range);
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
Status Reader::read_place(const YAML::Node& step, const char* key, uint8_t& buffer, uint32_t& chunk) const {
  const YAML::Node node = step[key];
  if (!node.IsDefined()) return {};
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const size_t space = text.find(' ');
  const std::string_view word = std::string_view(text).substr(0, space);
  const std::string_view digits = space == std::string::npos ? "" : std::string_view(text).substr(space + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), chunk);
  const bool numbered = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
  const bool scratch = word == "scratch" && version_ >= 2;
  if (!numbered || (word != "input" && word != "output" && !scratch)) {
    return wrong(node, fmt::format("'{}' must be 'input'{} 'output'{} and a chunk, for example 'input 3'", key,
                                   version_ >= 2 ? "," : " or", version_ >= 2 ? " or 'scratch'" : ""));
  }
  buffer = scratch ? TUTTI_BUFFER_SCRATCH : word == "input" ? TUTTI_BUFFER_INPUT : TUTTI_BUFFER_OUTPUT;
  return {};
}

/// Reads the peers of one side from the key `plain` (ranks) or `chunked` (ranks with chunks), which sets `flag`.
Status Reader::read_peers(const YAML::Node& step, const char* plain, const char* chunked, uint8_t flag, Plan& plan,
                          uint16_t& begin, uint16_t& count, uint8_t& flags) {
  const bool is_chunked = step[chunked].IsDefined();
  if (is_chunked && step[plain].IsDefined()) {
    return wrong(step[plain], fmt::format("'{}' stands beside '{}'", plain, chunked));
  }
  if (is_chunked) flags = static_cast<uint8_t>(flags | flag);
  const char* key = is_chunked ? chunked : plain;
  const YAML::Node list = step[key];
  if (!list.IsDefined()) return {};
  TUTTI_TRY(check_list(list, key));
  std::vector<tutti_plan_peer> peers;
  for (const YAML::Node& node : list) {
    if (++peers_ > kMaxFilePeers) return wrong(node, fmt::format("the file names more than {} peers", kMaxFilePeers));
    TUTTI_ASSIGN(const tutti_plan_peer peer, read_peer(node, is_chunked));
    peers.push_back(peer);
  }
  const auto found = std::search(plan.peers.begin(), plan.peers.end(), peers.begin(), peers.end(),
                                 [](const auto& a, const auto& b) { return a.rank == b.rank && a.chunk == b.chunk; });
  if (peers.size() > UINT16_MAX || found - plan.peers.begin() > UINT16_MAX) {
    return wrong(list, fmt::format("the plan names more than {} different peers", UINT16_MAX));
  }
  begin = static_cast<uint16_t>(found - plan.peers.begin());
  count = static_cast<uint16_t>(peers.size());
  if (found == plan.peers.end()) plan.peers.insert(plan.peers.end(), peers.begin(), peers.end());
  return {};
}

Result<tutti_plan_peer> Reader::read_peer(const YAML::Node& node, bool chunked) const {
  tutti_plan_peer peer = {};
  if (!chunked) {
    TUTTI_ASSIGN(peer.rank, number(node, "rank", 0, UINT32_MAX));
    return peer;
  }
  TUTTI_TRY(check_map(node, "a peer", {"rank", "chunk"}, {"rank", "chunk"}));
  TUTTI_TRY(number(node, "rank", 0, UINT32_MAX, peer.rank));
  TUTTI_TRY(number(node, "chunk", 0, UINT32_MAX, peer.chunk));
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
