// SPDX-License-Identifier: Apache-2.0
#include "plugin/list.h"

#include <fmt/format.h>

#include <set>

#include "plugin/loader.h"
#include "plugin/network_names.h"
#include "plugin/search.h"

namespace tutti::plugin {
namespace {

/// Loads the plugin of `file`, and opens it. `named_file`: FILE of NAME:FILE; empty: none.
void look_inside(Listed& listed, const std::filesystem::path& file, const std::string& named_file,
                 config::Config config) {
  auto image = Image::load(listed.note->kind, listed.note->name, file, config.text("plugins.trust"));
  if (!image.ok()) {
    listed.refused = image.status().text();
    return;
  }
  const tutti_plugin& table = (*image)->table();
  listed.description.assign(table.description.data, table.description.size);
  listed.capabilities = table.capabilities;
  listed.settings = (*image)->settings();
  if (auto plugin = Plugin::open(*image, config, named_file); !plugin.ok()) {
    listed.refused = plugin.status().text();
    listed.absent = plugin.status().code() == Code::kNotFound;
  }
}

/// A network that the configuration names as NAME:FILE, such as nccl:/opt/libnccl-net-x.so.
Listed look_at_reference(const std::string& named, const config::Config& config) {
  Listed listed;
  listed.file = named;
  const auto file = find(Kind::kNetwork, named, search_path(config.list("plugins.path")));
  if (!file.ok()) {
    listed.refused = file.status().text();
    return listed;
  }
  auto note = read_note(*file);
  if (!note.ok()) {
    listed.refused = note.status().text();
    return listed;
  }
  listed.note = *note;
  look_inside(listed, *file, reference_of(Kind::kNetwork, named).file, config);
  listed.absent = false;  // the configuration asks for this file
  return listed;
}

std::set<std::string> references_in(const config::Config& config) {
  std::set<std::string> references;
  for (const std::vector<std::string>& networks : {config.list("plugins.network"), fixed_networks(config)}) {
    for (const std::string& named : networks) {
      if (!reference_of(Kind::kNetwork, named).file.empty()) references.insert(named);
    }
  }
  return references;
}

}  // namespace

std::vector<Listed> list(const config::Config& config, bool open) {
  std::vector<Listed> out;
  std::set<std::string> seen;
  for (const auto& file : all_files(search_path(config.list("plugins.path")))) {
    Listed listed;
    listed.file = file;
    // The first file of a name is loaded or refused, regardless of later files.
    const bool first = seen.insert(file.filename().string()).second;
    auto note = read_note(file);
    if (!note.ok()) {
      listed.refused = note.status().text();
    } else {
      listed.note = *note;
      if (std::string refused = refused_abi(*note); !refused.empty()) {
        listed.refused = std::move(refused);
      } else if (file.filename() != file_name(note->kind, note->name)) {
        listed.refused = fmt::format("should be named {}", file_name(note->kind, note->name));
      } else if (!first) {
        listed.refused = "stands behind one of the same name, earlier on the search path";
      } else if (open) {
        look_inside(listed, file, {}, config);
      }
    }
    out.push_back(std::move(listed));
  }
  if (!open) return out;
  for (const std::string& named : references_in(config)) out.push_back(look_at_reference(named, config));
  return out;
}

}  // namespace tutti::plugin
