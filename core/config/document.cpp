// SPDX-License-Identifier: Apache-2.0
#include "config/document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "base/file.h"

namespace tutti::config {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxBytes = 1 << 20;

/// A refusal of the builder, in the words of this file.
class Refusal : public YAML::ParserException {
 public:
  using YAML::ParserException::ParserException;
};

/// Builds nodes from yaml-cpp's events, where anchors, tags and duplicates can still be seen. It refuses by throwing,
/// and read_document() catches the exception.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& name) : name_(name) {}
  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse(mark, "a second YAML document; keep one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_extras(mark, "?", anchor);
    if (expects_key()) refuse(mark, "a key must be a word");
    add(node(mark, Node::Kind::kNothing));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "aliases (*) are not used here"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_extras(mark, tag, anchor);
    if (expects_key()) return begin_entry(mark, text);
    Node scalar = node(mark, Node::Kind::kScalar);
    scalar.text = text;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Node node;
    std::map<std::string, std::string> seen;  // keys of a map, with their places
    std::string key = {};                     // key of the current entry
    std::string key_place = {};
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& text) { throw Refusal(mark, text); }
  static void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "anchors (&) are not used here");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "tags (!) are not used here");
  }

  bool expects_key() const {
    return !levels_.empty() && levels_.back().node.kind == Node::Kind::kMap && levels_.back().key_place.empty();
  }
  std::string place(const YAML::Mark& mark) const {
    return fmt::format("{}:{}:{}", name_, mark.line + 1, mark.column + 1);
  }
  Node node(const YAML::Mark& mark, Node::Kind kind) const {
    Node made;
    made.kind = kind;
    made.place = made.key_place = place(mark);
    return made;
  }

  void begin_entry(const YAML::Mark& mark, const std::string& key) {
    if (key.empty()) refuse(mark, "a key must be a word");
    Level& level = levels_.back();
    const auto [first, is_new] = level.seen.try_emplace(key, place(mark));
    if (!is_new) refuse(mark, fmt::format("'{}' stands twice; first at {}", key, first->second));
    level.key = key;
    level.key_place = place(mark);
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    refuse_extras(mark, tag, anchor);
    if (expects_key()) refuse(mark, "a key must be a word");
    if (levels_.size() == kMaxDepth) refuse(mark, "nested too deeply");
    levels_.push_back({node(mark, kind), {}});
  }
  void close() {
    Node done = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(done));
  }
  void add(Node done) {
    if (levels_.empty()) {
      root_ = std::move(done);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == Node::Kind::kMap) {
      done.key = std::move(level.key);
      done.key_place = std::move(level.key_place);
      level.key.clear();
      level.key_place.clear();
    }
    level.node.children.push_back(std::move(done));
  }

  const std::string& name_;
  int documents_ = 0;
  std::vector<Level> levels_;
  Node root_;
};

/// The line of this number, from 0.
std::string_view line_of(std::string_view text, int number) {
  for (; number > 0; --number) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The cause and the remedy of a syntax error that yaml-cpp found at `mark`.
std::string syntax_error(const YAML::Exception& error, const std::string& text) {
  const std::string_view line = line_of(text, error.mark.line);
  const std::string_view indent = line.substr(0, std::min(line.find_first_not_of(" \t"), line.size()));
  if (indent.find('\t') != std::string_view::npos) {
    return "the line begins with a tab; YAML indents by spaces alone";
  }
  if (error.msg == YAML::ErrorMsg::MAP_VALUE) {
    return "a ':' where no key can be; is the line indented more than its neighbours, or does the line above have a "
           "value already?";
  }
  if (error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW) return "a list that begins with '[' has no ']'";
  if (error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW) return "a map that begins with '{' has no '}'";
  return "this is no YAML: " + error.msg;
}

}  // namespace

Status wrong(std::string_view place, std::string_view text) {
  return {Code::kConfig, fmt::format("{}: {}", place, text)};
}

Result<Node> read_document(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes) return wrong(name, "larger than 1 MiB; is it a configuration?");
  try {
    // The comment makes yaml-cpp 0.7 notice a quote that is never closed: it only looks within the last line.
    std::istringstream in(text + (text.ends_with('\n') ? "#" : "\n#"));
    YAML::Parser parser(in);
    Builder builder(name);
    while (parser.HandleNextDocument(builder)) {
    }
    Node root = builder.take();
    if (root.kind != Node::Kind::kMap && root.kind != Node::Kind::kNothing) {
      return wrong(root.place, "the file must be a map of settings, such as 'protocol: ll'");
    }
    return root;
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) return wrong(name, error.msg);
    const bool ours = dynamic_cast<const Refusal*>(&error) != nullptr;
    return wrong(fmt::format("{}:{}:{}", name, error.mark.line + 1, error.mark.column + 1),
                 ours ? error.msg : syntax_error(error, text));
  } catch (const std::exception& error) {
    return wrong(name, error.what());
  }
}

Result<Node> read_file(const std::string& path) {
  TUTTI_ASSIGN(const std::string text,
               base::read_text(path, fmt::format("the configuration file {}", path), kMaxBytes + 1));
  return read_document(text, path);
}

}  // namespace tutti::config
