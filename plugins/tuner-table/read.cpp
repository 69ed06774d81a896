// SPDX-License-Identifier: Apache-2.0
// Reads a table from YAML, strictly: a misspelt key would silently decide nothing.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <initializer_list>
#include <map>
#include <string_view>

#include "table.h"

namespace tutti::tuner_table {
namespace {

constexpr uint32_t kSchema = 1;
constexpr uint32_t kMostChannels = 64;

/// As configurations and the command line call them, by TUTTI_ALL_REDUCE...
const std::vector<std::string> kCollectives = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                               "all_to_all", "gather",         "scatter",    "send_recv"};

/// A mistake at one position; becomes a Status in read_table().
struct Wrong {
  YAML::Mark mark;
  std::string text;
};
[[noreturn]] void refuse(const YAML::Node& node, const std::string& text) {
  throw Wrong{node.Mark(), text};
}

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string text_of(const YAML::Node& node, const std::string& key) {
  if (!node.IsScalar()) refuse(node, key + ": write one word or number (for none: \"\")");
  return node.Scalar();
}

template <class Number>
Number number_of(const YAML::Node& node, const std::string& key, Number least, Number most) {
  const std::string text = text_of(node, key);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    refuse(node, key + ": '" + text + "' is no number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

bool truth_of(const YAML::Node& node, const std::string& key) {
  const std::string text = text_of(node, key);
  if (text != "true" && text != "false") refuse(node, key + ": '" + text + "' is neither true nor false");
  return text == "true";
}

using Readers = std::map<std::string, std::function<void(const YAML::Node&)>>;

std::string names_of(const Readers& readers) {
  std::string names;
  for (const auto& [name, reader] : readers) names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// Reads every key of the map exactly once. Refuses unknown keys; keys of `optional` may be absent.
void read_map(const YAML::Node& node, const std::string& what, const Readers& readers,
              const std::vector<std::string>& optional) {
  if (!node.IsMap()) refuse(node, what + " must be a map of " + names_of(readers));
  std::map<std::string, bool> seen;
  for (const auto& item : node) {
    const std::string key = text_of(item.first, what);
    const auto reader = readers.find(key);
    if (reader == readers.end())
      refuse(item.first, joined({key, ": unknown in ", what, "; known are ", names_of(readers)}));
    if (seen[key]) refuse(item.first, key + ": stands twice; keep one");
    seen[key] = true;
    reader->second(item.second);
  }
  for (const auto& [key, reader] : readers) {
    if (seen[key] || std::find(optional.begin(), optional.end(), key) != optional.end()) continue;
    refuse(node, joined({key, ": missing in ", what, "; add it, or run 'tutti tune' again"}));
  }
}

Entry read_entry(const YAML::Node& node) {
  Entry entry;
  const auto text = [](const char* key, std::string& to) {
    return [key, &to](const YAML::Node& value) {
      to = text_of(value, key);
      if (to.empty()) refuse(value, std::string(key) + ": must not be empty");
    };
  };
  read_map(
      node, "an entry",
      {{"max_bytes",
        [&](const YAML::Node& value) {
          if (text_of(value, "max_bytes") == "unlimited") return;
          entry.max_bytes = number_of<uint64_t>(value, "max_bytes", 1, UINT64_MAX - 1);
        }},
       {"algorithm", text("algorithm", entry.algorithm)},
       {"variant", text("variant", entry.variant)},
       {"protocol", text("protocol", entry.protocol)},
       {"channels",
        [&](const YAML::Node& value) { entry.channels = number_of<uint32_t>(value, "channels", 1, kMostChannels); }},
       {"measured_us",
        [&](const YAML::Node& value) { entry.measured_us = number_of<double>(value, "measured_us", 1e-3, 1e12); }},
       {"registered", [&](const YAML::Node& value) { entry.registered = truth_of(value, "registered"); }}},
      {"variant", "registered"});
  return entry;
}

std::vector<Entry> read_entries(const YAML::Node& node, const std::string& collective) {
  if (!node.IsSequence()) refuse(node, collective + ": must be a list of entries");
  std::vector<Entry> entries;
  for (const YAML::Node& item : node) {
    Entry entry = read_entry(item);
    const auto before = std::find_if(entries.rbegin(), entries.rend(),
                                     [&](const Entry& other) { return other.registered == entry.registered; });
    if (before != entries.rend() && entry.max_bytes <= before->max_bytes) {
      refuse(item, "max_bytes: must grow from entry to entry, 'unlimited' last; sort the entries of " + collective);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

void read_collectives(const YAML::Node& node, Table& table) {
  Readers readers;
  for (uint32_t c = 0; c < kCollectives.size(); ++c) {
    const std::string& name = kCollectives[c];
    readers[name] = [&table, &name, c](const YAML::Node& value) { table.entries[c] = read_entries(value, name); };
  }
  read_map(node, "collectives", readers, kCollectives);
}

Table read(const YAML::Node& root) {
  Table table;
  Conditions& measured = table.conditions;
  read_map(
      root, "a table",
      {{"tutti_table", [](const YAML::Node& value) { number_of<uint32_t>(value, "tutti_table", kSchema, kSchema); }},
       {"tutti_version", [&](const YAML::Node& value) { measured.tutti_version = text_of(value, "tutti_version"); }},
       {"gpu", [&](const YAML::Node& value) { measured.gpu = text_of(value, "gpu"); }},
       {"ranks", [&](const YAML::Node& value) { measured.ranks = number_of<uint32_t>(value, "ranks", 1, 1u << 30); }},
       {"nodes", [&](const YAML::Node& value) { measured.nodes = number_of<uint32_t>(value, "nodes", 1, 1u << 30); }},
       {"collectives", [&](const YAML::Node& value) { read_collectives(value, table); }}},
      {});
  return table;
}

Status wrong(const std::string& name, const YAML::Mark& mark, const std::string& text) {
  const std::string line = mark.is_null() ? "" : ":" + std::to_string(mark.line + 1);
  return {Code::kConfig, name + line + ": " + text};
}

}  // namespace

Result<Table> read_table(const std::string& text, const std::string& name) {
  try {
    return read(YAML::Load(text));
  } catch (const Wrong& found) {
    return wrong(name, found.mark, found.text);
  } catch (const YAML::Exception& error) {
    return wrong(name, error.mark, error.msg + "; is this a table of 'tutti tune'?");
  }
}

}  // namespace tutti::tuner_table
