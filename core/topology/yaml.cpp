// SPDX-License-Identifier: Apache-2.0
// Our YAML form of a machine: the elements and attributes of NCCL's XML as maps and lists.
//
//   tutti_topology: 1
//   name: two GPUs
//   cpu:
//     - numaid: 0
//       pci:
//         - {busid: "0000:01:00.0", link_speed: 16.0 GT/s PCIe, link_width: 16, gpu: {dev: 0, sm: 86}}
//         - {busid: "0000:02:00.0", link_speed: 16.0 GT/s PCIe, link_width: 16, gpu: {dev: 1, sm: 86}}
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>

#include "config/document.h"
#include "config/suggest.h"
#include "topology/element.h"

namespace tutti::topology {
namespace {

constexpr const char* kVersionKey = "tutti_topology";
constexpr const char* kDialectKey = "dialect";  // the dialect of the original NCCL XML: 2 on AMD machines

/// The line in "file:3:12".
int line_of(const std::string& place) {
  const size_t column = place.rfind(':');
  const size_t line = column == 0 || column == std::string::npos ? std::string::npos : place.rfind(':', column - 1);
  return line == std::string::npos ? 0 : std::atoi(place.c_str() + line + 1);
}

class Reader {
 public:
  Result<Element> read(const config::Node& node, const ElementKind& kind, int depth) {
    Element element;
    element.tag = kind.tag;
    element.line = line_of(node.place);
    if (depth > kMaxDepth || ++count_ > kMaxElements) {
      return config::wrong(node.place, fmt::format("more than {} levels or {} elements", kMaxDepth, kMaxElements));
    }
    if (node.kind == config::Node::Kind::kNothing) return element;
    if (node.kind != config::Node::Kind::kMap) {
      return config::wrong(node.place, fmt::format("'{}' is a map of keys and values here", kind.tag));
    }
    for (const config::Node& entry : node.children) TUTTI_TRY(read_entry(entry, kind, depth, element));
    return element;
  }

 private:
  Status read_entry(const config::Node& entry, const ElementKind& kind, int depth, Element& element) {
    if (std::find(kind.attributes.begin(), kind.attributes.end(), entry.key) != kind.attributes.end()) {
      if (entry.kind != config::Node::Kind::kScalar) {
        return config::wrong(entry.place, fmt::format("{} is a single value", entry.key));
      }
      element.attributes.emplace_back(entry.key, entry.key == kFlag ? flag_text(entry.text) : entry.text);
      return {};
    }
    if (std::find(kind.children.begin(), kind.children.end(), entry.key) == kind.children.end()) {
      std::vector<std::string> known(kind.attributes.begin(), kind.attributes.end());
      known.insert(known.end(), kind.children.begin(), kind.children.end());
      return config::wrong(entry.key_place,
                           fmt::format("'{}' does not belong in {}{}; allowed: {}", entry.key, kind.tag,
                                       config::did_you_mean(entry.key, known), fmt::join(known, ", ")));
    }
    // One child may stand without a list; `nic:` without anything is an adapter without ports.
    const auto add = [&](const config::Node& node) -> Status {
      TUTTI_ASSIGN(Element child, read(node, *kind_of(entry.key), depth + 1));
      element.children.push_back(std::move(child));
      return {};
    };
    if (entry.kind != config::Node::Kind::kList) return add(entry);
    for (const config::Node& node : entry.children) TUTTI_TRY(add(node));
    return {};
  }

  static constexpr std::string_view kFlag = "gdr";
  static std::string flag_text(const std::string& scalar) {
    if (scalar == "true" || scalar == "yes") return "1";
    return scalar == "false" || scalar == "no" ? "0" : scalar;
  }

  size_t count_ = 0;
};

/// Whether a value needs no quotes for any reader: some readers take an address such as 00:10:00 for a number.
bool is_plain(const std::string& value) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == ' ' || c == '-';
  };
  return !value.empty() && value.front() != ' ' && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(), plain);
}

void write(YAML::Emitter& out, const Element& element) {
  out << (element.children.empty() && element.tag != "system" ? YAML::Flow : YAML::Block) << YAML::BeginMap;
  for (const auto& [name, value] : element.attributes) {
    if (element.tag == "system" && name == "version") continue;
    out << YAML::Key << name << YAML::Value;
    if (!is_plain(value)) out << YAML::DoubleQuoted;
    out << value;
  }
  for (size_t i = 0; i < element.children.size();) {
    const std::string& tag = element.children[i].tag;
    out << YAML::Key << tag << YAML::Value << YAML::Block << YAML::BeginSeq;
    for (; i < element.children.size() && element.children[i].tag == tag; ++i) write(out, element.children[i]);
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
}

}  // namespace

Result<Document> Document::read_yaml(std::string_view text, std::string_view source) {
  if (text.size() > kMaxYamlBytes) {
    return Status(Code::kConfig,
                  fmt::format("{}: more than {} MiB; name a file that describes one machine, or write it as XML",
                              source, kMaxYamlBytes >> 20));
  }
  TUTTI_ASSIGN(config::Node root, config::read_document(std::string(text), std::string(source)));
  int dialect = 1;
  bool is_topology = false;
  for (auto entry = root.children.begin(); entry != root.children.end();) {
    int highest = 0;
    if (entry->key == kVersionKey) highest = 1;
    if (entry->key == kDialectKey) highest = 2;
    if (highest == 0) {
      ++entry;
      continue;
    }
    if (entry->text != "1" && (highest < 2 || entry->text != "2")) {
      return config::wrong(
          entry->place, fmt::format("{} is {} for this version of Tutti", entry->key, highest == 1 ? "1" : "1 or 2"));
    }
    is_topology = is_topology || highest == 1;
    if (highest == 2) dialect = entry->text == "2" ? 2 : 1;
    entry = root.children.erase(entry);
  }
  if (!is_topology) {
    return config::wrong(source, fmt::format("this is no topology: neither XML, nor YAML with '{}: 1'", kVersionKey));
  }
  TUTTI_ASSIGN(const Element system, Reader().read(root, *kind_of("system"), 0));
  TUTTI_ASSIGN(Document document, decode(system, source));
  document.version = dialect;
  return document;
}

std::string write_yaml(const Document& document) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << kVersionKey << YAML::Value << 1;
  if (document.version != 1) out << YAML::Key << kDialectKey << YAML::Value << document.version;
  const Element system = encode(document);
  if (!document.name.empty()) {
    out << YAML::Key << "name" << YAML::Value;
    if (!is_plain(document.name)) out << YAML::DoubleQuoted;
    out << document.name;
  }
  out << YAML::Key << "cpu" << YAML::Value << YAML::BeginSeq;
  for (const Element& cpu : system.children) write(out, cpu);
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace tutti::topology
