// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin/new.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "plugin/kind.h"
#include "tools/commands.h"
#include "tools/plugin/templates.h"

namespace tutti::tools {
namespace {

constexpr size_t kLongestName = 31;  // as tutti_add_plugin() and the note have it

constexpr const char* kFooter = R"(
Writes a folder NAME with a small plugin that works, and a test that runs `tutti plugin test`. Replace its code step by
step. Exit codes: 0 success; 1 the folder exists or cannot be written; 2 there is no such kind, or the name is wrong.)";

struct Work {
  std::string kind, name;
  std::string into = ".";
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_name(const std::string& name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongestName && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), fits);
}

/// "unix_stream" as "UnixStream".
std::string pascal(std::string_view name) {
  std::string out;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') out += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = c == '_';
  }
  return out;
}

/// Replaces `from` where it occurs; `whole`: only where it is a word of its own.
std::string replace(std::string_view text, std::string_view from, std::string_view to, bool whole) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at + from.size();
    const bool found = text.substr(at, from.size()) == from;
    const bool alone = (at == 0 || !is_word(text[at - 1])) && (end >= text.size() || !is_word(text[end]));
    if (found && (alone || !whole)) {
      out += to;
      at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string renamed(std::string_view text, const Template& from, const std::string& name) {
  return replace(replace(text, from.example, name, true), pascal(from.example), pascal(name), false);
}

Status write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.close();
  return out.good() ? Status() : base::file_error(fmt::format("cannot write '{}'", path.string()));
}

/// The prefix of the installation that the tool is part of; empty: it is not installed.
std::string own_prefix() {
  std::error_code unknown;
  const std::filesystem::path prefix =
      std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path().parent_path();
  return std::filesystem::exists(prefix / "include/tutti/sdk/plugin.h", unknown) ? prefix.string() : "";
}

Status make(const Work& work) {
  const std::filesystem::path folder = std::filesystem::path(work.into) / work.name;
  if (mkdir(folder.c_str(), 0777) != 0) {
    if (errno == EEXIST) {
      return {Code::kFailedPrecondition, fmt::format("'{}' exists; remove it, or name another folder with --into",
                                                     folder.lexically_normal().string())};
    }
    return base::file_error(fmt::format("cannot make the folder '{}'", folder.lexically_normal().string()));
  }
  for (const Template& file : templates()) {
    if (file.kind != work.kind) continue;
    const std::filesystem::path path = folder / renamed(file.file, file, work.name);
    TUTTI_TRY(write(path, renamed(file.content, file, work.name)));
    fmt::print("wrote {}\n", path.lexically_normal().string());
  }
  const std::string prefix = own_prefix();
  fmt::print(
      "next:\n  cd {}\n  cmake -B build -DCMAKE_PREFIX_PATH={}\n  cmake --build build\n  ctest --test-dir build\n",
      folder.lexically_normal().string(), prefix.empty() ? "/path/of/an/installed/tutti" : prefix);
  return {};
}

int usage(const std::string& text) {
  fmt::print(stderr, "tutti: {}\n", text);
  return kUsage;
}

int run(const Work& work) {
  const auto is_kind = [&](plugin::Kind kind) { return plugin::short_name(kind) == work.kind; };
  if (std::none_of(plugin::kKinds.begin(), plugin::kKinds.end(), is_kind)) {
    return usage(fmt::format("there is no kind '{}' of plugins; the kinds are algo, net, proto and tuner", work.kind));
  }
  if (!is_name(work.name)) {
    return usage(
        fmt::format("'{}' cannot name a plugin; a name is a-z, 0-9 and _, begins with a letter, and has at "
                    "most {} characters",
                    work.name, kLongestName));
  }
  const Status made = make(work);
  return made.ok() ? kSuccess : fail(made);
}

}  // namespace

void add_plugin_new(CLI::App& command, int& exit_code) {
  const auto work = std::make_shared<Work>();
  CLI::App* verb = command.add_subcommand("new", "Write the project of a new plugin");
  verb->add_option("kind", work->kind, "algo, net, proto or tuner")->required();
  verb->add_option("name", work->name, "Name of the plugin, and of its folder")->required();
  verb->add_option("--into", work->into, "The folder in which the new folder is made (default: this one)")
      ->option_text("DIR");
  verb->footer(kFooter);
  verb->callback([work, &exit_code] { exit_code = run(*work); });
}

}  // namespace tutti::tools
