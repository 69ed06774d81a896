// SPDX-License-Identifier: Apache-2.0
#include "plugin/list.h"

#include <fmt/format.h>

#include <set>

#include "plugin/loader.h"
#include "plugin/search.h"

namespace tutti::plugin {
namespace {

void look_inside(Listed& listed, config::Config config) {
  auto image = Image::load(listed.note->kind, listed.note->name, listed.file, config.text("plugins.trust"));
  if (!image.ok()) {
    listed.refused = image.status().text();
    return;
  }
  const tutti_plugin& table = (*image)->table();
  listed.description.assign(table.description.data, table.description.size);
  listed.capabilities = table.capabilities;
  listed.settings = (*image)->settings();
  if (auto plugin = Plugin::open(*image, config); !plugin.ok()) {
    listed.refused = plugin.status().text();
    listed.absent = plugin.status().code() == Code::kNotFound;
  }
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
        look_inside(listed, config);
      }
    }
    out.push_back(std::move(listed));
  }
  return out;
}

}  // namespace tutti::plugin
