// SPDX-License-Identifier: Apache-2.0
// NCCL's topology XML, by pugixml.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "topology/element.h"

#ifdef TUTTI_HAS_PUGIXML
#include <pugixml.hpp>

#include <sstream>
#endif

namespace tutti::topology {

#ifdef TUTTI_HAS_PUGIXML
namespace {

/// Lines by offset.
class Lines {
 public:
  explicit Lines(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') ends_.push_back(i);
    }
  }
  int of(ptrdiff_t offset) const {
    const auto end = std::lower_bound(ends_.begin(), ends_.end(), static_cast<size_t>(std::max<ptrdiff_t>(offset, 0)));
    return 1 + static_cast<int>(end - ends_.begin());
  }

 private:
  std::vector<size_t> ends_;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : lines_(text), source_(source) {}

  Result<Element> read(const pugi::xml_node& node, const ElementKind& kind, int depth) {
    Element element;
    element.tag = node.name();
    element.line = lines_.of(node.offset_debug());
    if (depth > kMaxDepth || ++count_ > kMaxElements) {
      return wrong(element.line, fmt::format("more than {} levels or {} elements", kMaxDepth, kMaxElements));
    }
    // Files carry attributes of other versions and tools, which are not needed here.
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      element.attributes.emplace_back(attribute.name(), attribute.value());
    }
    for (const pugi::xml_node& child : node.children()) {
      const int line = lines_.of(child.offset_debug());
      if (child.type() != pugi::node_element) {
        return wrong(line, fmt::format("text within <{}>; only elements belong there", element.tag));
      }
      const bool allowed = std::find(kind.children.begin(), kind.children.end(), child.name()) != kind.children.end();
      if (!allowed) {
        return wrong(line,
                     fmt::format("<{}> does not belong in <{}>{}", child.name(), element.tag,
                                 kind.children.empty() ? ", which holds no elements"
                                                       : fmt::format("; allowed: {}", fmt::join(kind.children, ", "))));
      }
      TUTTI_ASSIGN(Element read_child, read(child, *kind_of(child.name()), depth + 1));
      element.children.push_back(std::move(read_child));
    }
    return element;
  }

  Status wrong(int line, std::string_view what) const {
    return Status(Code::kConfig, fmt::format("{}:{}: {}", source_, line, what));
  }
  int line_of(ptrdiff_t offset) const { return lines_.of(offset); }

 private:
  Lines lines_;
  std::string_view source_;
  size_t count_ = 0;
};

void write(pugi::xml_node parent, const Element& element) {
  pugi::xml_node node = parent.append_child(element.tag.c_str());
  for (const auto& [name, value] : element.attributes) node.append_attribute(name.c_str()) = value.c_str();
  for (const Element& child : element.children) write(node, child);
}

}  // namespace

Result<Document> Document::read_xml(std::string_view text, std::string_view source) {
  if (text.size() > kMaxFileBytes) {
    return Status(Code::kConfig, fmt::format("{}: more than {} MiB; name a file that describes one machine", source,
                                             kMaxFileBytes >> 20));
  }
  Reader reader(text, source);
  pugi::xml_document parsed;
  const pugi::xml_parse_result outcome = parsed.load_buffer(text.data(), text.size());
  if (!outcome) return reader.wrong(reader.line_of(outcome.offset), outcome.description());
  const pugi::xml_node root = parsed.document_element();
  const std::string_view name = root.name();
  if (name == "graphs") {
    return reader.wrong(reader.line_of(root.offset_debug()),
                        "this is a file of channels (<graphs>), not of a machine; a topology begins with <system>");
  }
  if (name != "system") {
    return reader.wrong(reader.line_of(root.offset_debug()),
                        fmt::format("<{}> is no topology; one begins with <system>", name));
  }
  if (const pugi::xml_node second = root.next_sibling()) {
    return reader.wrong(reader.line_of(second.offset_debug()), "there is more after </system>; a file is one machine");
  }
  TUTTI_ASSIGN(const Element system, reader.read(root, *kind_of("system"), 0));
  return decode(system, source);
}

std::string write_xml(const Document& document) {
  pugi::xml_document xml;
  write(xml, encode(document));
  std::ostringstream out;
  xml.save(out, "  ", pugi::format_default | pugi::format_no_declaration);
  return out.str();
}

#else

Result<Document> Document::read_xml(std::string_view, std::string_view source) {
  return Status(Code::kUnsupported,
                fmt::format("{}: this build cannot read XML; build it with pugixml, or use the YAML form", source));
}

std::string write_xml(const Document& document) {
  return fmt::format("<!-- {}: this build cannot write XML; build it with pugixml -->\n", document.source);
}

#endif

}  // namespace tutti::topology
