// SPDX-License-Identifier: Apache-2.0
// Reads a plugin's description of itself in its ELF note, without running any of its code.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "plugin/kind.h"
#include "tutti/status.h"

namespace tutti::plugin {

struct Note {
  Kind kind = Kind::kAlgorithm;
  std::string name;
  std::string version;
  Abi abi;                    ///< of its kind
  uint32_t cuda_major = 0;    ///< 0: no device code
  std::string architectures;  ///< "90 100"
};

/// The sentence that refuses a plugin whose ABI this host does not take; empty: the host takes it.
std::string refused_abi(const Note& note);

/// Reads the headers and the notes of the file, not its code. If the file is no plugin for this machine, the failure
/// describes it.
Result<Note> read_note(const std::filesystem::path& path);
/// The same for a file's content. Never reads beyond it, with any content.
Result<Note> parse_note(std::span<const std::byte> image);

}  // namespace tutti::plugin
