// SPDX-License-Identifier: Apache-2.0
// The steps of a plan file.
#include <fmt/format.h>

#include <algorithm>

#include "program/file/reader.h"

namespace tutti::program {
namespace {

/// Limits the memory that a file can make the reader allocate.
constexpr size_t kMaxFilePeers = size_t{1} << 24;
constexpr size_t kMaxFileChunks = size_t{1} << 22;  // of steps with several

}  // namespace

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
                       "to_stride", "final", "after"},
                      {}));
  for (const char* key : {"gather_to", "chunks", "own_stride", "to_stride", "after"})
    TUTTI_TRY(check_version(node, key));
  tutti_plan_step step = {};
  tutti_plan_growth growth = {};
  TUTTI_ASSIGN(const BufferChunk own, read_buffer_chunk(node, "own"));
  TUTTI_ASSIGN(const BufferChunk to, read_buffer_chunk(node, "to"));
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
  TUTTI_TRY(read_after(node, plan));
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

/// Reads the steps that the next step of the plan waits for.
Status Reader::read_after(const YAML::Node& step, Plan& plan) {
  const YAML::Node list = step["after"];
  if (!list.IsDefined()) return {};
  if (!in_strand_) return wrong(list, "'after' stands in a plan without 'strands'");
  TUTTI_TRY(check_list(list, "after"));
  std::vector<uint32_t> after;
  for (const YAML::Node& node : list) {
    TUTTI_ASSIGN(const uint32_t number, this->number(node, "after", 0, kMaxSteps));
    after.push_back(number);
  }
  std::sort(after.begin(), after.end());
  const auto twice = std::adjacent_find(after.begin(), after.end());
  if (twice != after.end()) return wrong(list, fmt::format("'after' names step {} twice", *twice));
  for (const uint32_t number : after) plan.waits.push_back({static_cast<uint32_t>(plan.steps.size()), number});
  if (plan.waits.size() <= kMaxWaits) return {};
  return wrong(list, fmt::format("the plan has more than {} waits", kMaxWaits));
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
Result<Reader::BufferChunk> Reader::read_buffer_chunk(const YAML::Node& step, const char* key) const {
  const YAML::Node node = step[key];
  if (!node.IsDefined()) return BufferChunk();
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
  return BufferChunk{static_cast<uint8_t>(buffer), number};
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

}  // namespace tutti::program
