// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bootstrap/rank_list.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kMaxDifferences = 16;  // more do not help a reader

Bytes pack_lines(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  std::vector<Bytes> entries;
  entries.reserve(lines.size());
  for (const std::string& line : lines) entries.push_back(to_bytes(line));
  return pack(entries);
}

Result<std::vector<std::string>> unpack_lines(std::span<const std::byte> packed) {
  TUTTI_ASSIGN(const auto entries, entries_of(packed));
  std::vector<std::string> lines;
  lines.reserve(entries.size());
  for (const std::span<const std::byte> entry : entries) lines.push_back(to_text(entry));
  return lines;
}

Bytes encode(const Identity& identity) {
  const std::array parts = {to_bytes(identity.version), pack_lines(identity.plugins), pack_lines(identity.config),
                            pack_lines(identity.decisions), pack_lines(identity.plan_files)};
  return pack(parts);
}

Result<Identity> decode(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const auto parts, entries_of(bytes));
  if (parts.size() != 5) return Status(Code::kInternal, "an identity has 5 parts");
  Identity identity;
  identity.version = to_text(parts[0]);
  TUTTI_ASSIGN(identity.plugins, unpack_lines(parts[1]));
  TUTTI_ASSIGN(identity.config, unpack_lines(parts[2]));
  TUTTI_ASSIGN(identity.decisions, unpack_lines(parts[3]));
  TUTTI_ASSIGN(identity.plan_files, unpack_lines(parts[4]));
  return identity;
}

/// The compared facts, in the order of the text: "config key 'shm.slots'" → "8".
using Facts = std::map<std::pair<int, std::string>, std::string>;

Facts facts_of(const Identity& identity) {
  Facts facts;
  facts[{0, "the version of Tutti"}] = identity.version;
  for (const std::string& line : identity.plugins) {
    const size_t blank = std::min(line.find(' '), line.size());  // "net.socket 0.1.0, ABI 1.0"
    facts[{2, "plugin " + line.substr(0, blank)}] = line.substr(std::min(blank + 1, line.size()));
  }
  const auto add = [&](int place, const char* what, const std::string& line) {
    const size_t equals = std::min(line.find('='), line.size());
    const std::string value = line.substr(std::min(equals + 1, line.size()));
    facts[{place, fmt::format("{} '{}'", what, line.substr(0, equals))}] = value.empty() ? "empty" : value;
  };
  for (const std::string& line : identity.config) add(1, "config key", line);
  for (const std::string& line : identity.plan_files) add(2, "plan file", line);
  for (const std::string& line : identity.decisions) add(3, "what runs", line);
  return facts;
}

/// "is 8 on ranks 0-2,4-7 and 16 on rank 3", values in the order of their first rank; empty where all have the same.
std::string compare(const std::vector<Facts>& facts, const Facts::key_type& key) {
  std::vector<std::pair<std::string, std::vector<int>>> values;
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const auto fact = facts[rank].find(key);
    const std::string value = fact == facts[rank].end() ? "missing" : fact->second;
    auto known = std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == value; });
    if (known == values.end()) known = values.insert(known, {value, {}});
    known->second.push_back(static_cast<int>(rank));
  }
  if (values.size() < 2) return {};
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{} on {}",
                        i == 0                   ? ""
                        : i + 1 == values.size() ? " and "
                                                 : ", ",
                        values[i].first, rank_list(values[i].second));
  return text;
}

}  // namespace

std::string difference_of(const std::vector<Identity>& identities) {
  std::vector<Facts> facts;
  facts.reserve(identities.size());
  for (const Identity& identity : identities) facts.push_back(facts_of(identity));
  Facts all;
  for (const Facts& of_rank : facts) all.insert(of_rank.begin(), of_rank.end());
  std::string text;
  size_t count = 0;
  for (const auto& [key, value] : all) {
    const std::string difference = compare(facts, key);
    if (difference.empty() || ++count > kMaxDifferences) continue;
    text += fmt::format("{}{} is {}", count == 1 ? "" : "; ", key.second, difference);
  }
  if (count > kMaxDifferences) text += fmt::format("; and {} more differences", count - kMaxDifferences);
  return text;
}

uint64_t hash(std::span<const std::byte> bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) value = (value ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return value;
}

Status agree(Bootstrap& bootstrap, const Identity& mine, base::Time deadline) {
  const Bytes encoded = encode(mine);
  const uint64_t own_hash = hash(encoded);
  TUTTI_ASSIGN(const Gathered hashes, bootstrap.all_gather(std::as_bytes(std::span(&own_hash, 1)), deadline));
  const auto is_first = [&](Gathered::Part hash) { return std::ranges::equal(hash, hashes[0]); };
  if (std::ranges::all_of(hashes, is_first)) return {};
  TUTTI_ASSIGN(const Gathered texts, bootstrap.all_gather(encoded, deadline));
  std::vector<Identity> identities;
  for (const Gathered::Part text : texts) {
    TUTTI_ASSIGN(Identity identity, decode(text));
    identities.push_back(std::move(identity));
  }
  return Status(Code::kMismatch, "ranks disagree: " + difference_of(identities));
}

}  // namespace tutti::bootstrap
