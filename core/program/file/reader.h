// SPDX-License-Identifier: Apache-2.0
// The reader of plan files.
#pragma once

#include <yaml-cpp/yaml.h>

#include "program/file/affine.h"
#include "program/file/file.h"

namespace tutti::program {

/// Reads one document. Every failure names its place.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Result<PlanFile> read(const YAML::Node& root);

 private:
  using Keys = std::initializer_list<std::string_view>;

  Status wrong(const YAML::Node& node, std::string_view what) const { return wrong(node.Mark(), what); }
  Status wrong(const YAML::Mark& mark, std::string_view what) const;
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
  Status read_body(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines);
  Status read_strands(const YAML::Node& strands, Plan& plan, std::vector<uint32_t>& lines);
  Status read_steps(const YAML::Node& steps, Plan& plan, std::vector<uint32_t>& lines);
  Status read_repeat(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines);
  Status append_step(const YAML::Node& node, Plan& plan, std::vector<uint32_t>& lines);
  Status read_step(const YAML::Node& node, Plan& plan);
  Result<Affine> affine(const YAML::Node& node, std::string_view text, std::string_view key) const;
  Result<Affine> read_number(const YAML::Node& node, std::string_view key, uint64_t most) const;
  Status read_growth(const YAML::Node& node, std::string_view key, int64_t growth, uint32_t modulus,
                     uint32_t& into) const;
  /// A chunk of a buffer, as a step names it: "input 3".
  struct BufferChunk {
    uint8_t buffer = TUTTI_BUFFER_NONE;
    Affine chunk;
  };
  Result<BufferChunk> read_buffer_chunk(const YAML::Node& node, const char* key) const;
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
  Status read_after(const YAML::Node& step, Plan& plan);
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
  bool in_repeat_ = false;         ///< numbers may grow
  bool in_strand_ = false;         ///< steps may wait for steps
  std::vector<YAML::Mark> marks_;  ///< the places of the steps of a plan with strands
};

}  // namespace tutti::program
