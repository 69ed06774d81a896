// SPDX-License-Identifier: Apache-2.0
#include "plugin/note.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "base/fd.h"

namespace tutti::plugin {
namespace {

// A linker makes about ten segments, and notes of less than 1 KiB. The limits bound the time that a damaged file takes.
constexpr uint32_t kMaxSegments = 512;
constexpr uint64_t kMaxNoteBytes = 64 << 10;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "unknown machine"
#endif

Status no_plugin(std::string text) {
  return {Code::kUnsupported, std::move(text)};
}

Status unreadable(int error) {
  return base::system_error(error == EACCES ? "cannot be read; check its permissions" : "cannot be read", error);
}

/// Bounds-checked reads of an image, which need not be in memory as a whole.
class Image {
 public:
  /// Fills `to` with the bytes from `offset` on; false: they cannot be read.
  using Read = std::function<bool(uint64_t offset, std::span<std::byte> to)>;

  Image(uint64_t bytes, Read read) : bytes_(bytes), read_(std::move(read)) {}

  template <class T>
  std::optional<T> at(uint64_t offset) const {
    if (offset > bytes_ || bytes_ - offset < sizeof(T)) return std::nullopt;
    T value;
    if (!read_(offset, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
    return value;
  }
  uint64_t size() const { return bytes_; }

 private:
  uint64_t bytes_;
  Read read_;
};

Result<Elf64_Ehdr> read_header(const Image& image) {
  const auto ident = image.at<std::array<unsigned char, EI_NIDENT>>(0);
  if (!ident || std::memcmp(ident->data(), ELFMAG, SELFMAG) != 0)
    return no_plugin("is not a shared object (no ELF header)");
  if ((*ident)[EI_CLASS] != ELFCLASS64) return no_plugin("is built for a 32-bit machine");
  if ((*ident)[EI_DATA] != ELFDATA2LSB) return no_plugin("is built for a big-endian machine");
  const auto header = image.at<Elf64_Ehdr>(0);
  if (!header) return no_plugin("is cut off within its ELF header");
  if (header->e_machine != kMachine)
    return no_plugin(fmt::format("is built for another processor (ELF machine {})", header->e_machine));
  if (header->e_type != ET_DYN) return no_plugin("is not a shared object (ELF type is not DYN)");
  if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > kMaxSegments)
    return no_plugin("has a damaged ELF header");
  return *header;
}

std::string text_of(const char* field, size_t size) {
  return {field, strnlen(field, size)};
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Result<Note> decode(const tutti_plugin_note& note) {
  if (note.layout != TUTTI_NOTE_LAYOUT) {
    return no_plugin(
        fmt::format("has a Tutti note of layout {}; this version reads layout {}", note.layout, TUTTI_NOTE_LAYOUT));
  }
  if (note.kind < TUTTI_KIND_ALGORITHM || note.kind > TUTTI_KIND_TUNER) {
    return no_plugin(fmt::format("has a Tutti note of the unknown plugin kind {}", note.kind));
  }
  Note out{static_cast<Kind>(note.kind),
           text_of(note.name, sizeof note.name),
           text_of(note.version, sizeof note.version),
           {note.abi_major, note.abi_minor},
           note.cuda_major,
           text_of(note.architectures, sizeof note.architectures)};
  if (!printable(out.name) || !printable(out.version) || !printable(out.architectures)) {
    return no_plugin("has a damaged Tutti note (its texts are not printable)");
  }
  return out;
}

/// Finds our note among the notes of [offset, offset + size).
Result<std::optional<Note>> find_note(const Image& image, uint64_t offset, uint64_t size) {
  const uint64_t end = offset + size;
  while (offset < end && end - offset >= sizeof(Elf64_Nhdr)) {
    const auto header = image.at<Elf64_Nhdr>(offset);
    if (!header) return no_plugin("is cut off within its notes");
    const uint64_t owner = offset + sizeof(Elf64_Nhdr);
    const uint64_t descriptor = owner + (uint64_t{header->n_namesz} + 3) / 4 * 4;
    if (header->n_type == TUTTI_NOTE_TYPE && header->n_namesz == sizeof TUTTI_NOTE_OWNER) {
      const auto name = image.at<std::array<char, sizeof TUTTI_NOTE_OWNER>>(owner);
      if (name && std::memcmp(name->data(), TUTTI_NOTE_OWNER, sizeof TUTTI_NOTE_OWNER) == 0) {
        const auto note = image.at<tutti_plugin_note>(descriptor);
        if (!note || header->n_descsz < sizeof(tutti_plugin_note)) return no_plugin("is cut off within its Tutti note");
        TUTTI_ASSIGN(Note decoded, decode(*note));
        return std::optional<Note>(std::move(decoded));
      }
    }
    offset = descriptor + (uint64_t{header->n_descsz} + 3) / 4 * 4;
  }
  return std::optional<Note>();
}

/// The note of a plugin for this machine.
Result<Note> note_of(const Image& image) {
  TUTTI_ASSIGN(const Elf64_Ehdr header, read_header(image));
  std::optional<Note> note;  // every segment is looked at, so that no file that is cut off gets mapped
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = image.at<Elf64_Phdr>(header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (!segment) return no_plugin("is cut off: its program headers are missing");
    if (segment->p_offset > image.size() || segment->p_filesz > image.size() - segment->p_offset) {
      return no_plugin(fmt::format("is cut off: a segment ends beyond the file's {} bytes", image.size()));
    }
    if (segment->p_type != PT_NOTE || note) continue;
    if (segment->p_filesz > kMaxNoteBytes)
      return no_plugin(
          fmt::format("has {} bytes of notes, and a plugin has at most {}", segment->p_filesz, kMaxNoteBytes));
    TUTTI_ASSIGN(note, find_note(image, segment->p_offset, segment->p_filesz));
  }
  if (note) return *std::move(note);
  return no_plugin("is a shared object, but no Tutti plugin (it has no Tutti note)");
}

}  // namespace

std::string refused_abi(const Note& note) {
  const Abi host = abi_of(note.kind);
  if (takes(host, note.abi)) return {};
  return fmt::format("is built for {} ABI {}.{}; this Tutti {} takes {} ABI {}.{}{}; get a build of the plugin for it",
                     to_string(note.kind), note.abi.major, note.abi.minor, TUTTI_VERSION, to_string(note.kind),
                     host.major, host.minor > 0 && host.major > 0 ? "0 to " : "", host.minor);
}

Result<Note> parse_note(std::span<const std::byte> image) {
  return note_of({image.size(), [image](uint64_t offset, std::span<std::byte> to) {
                    std::memcpy(to.data(), image.data() + offset, to.size());
                    return true;
                  }});
}

Result<Note> read_note(const std::filesystem::path& path) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return Status(Code::kSystem, fmt::format("cannot be read: {}", error.message()));
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return unreadable(errno);
  int failure = 0;
  const auto read = [&](uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const ssize_t count = ::pread(file.get(), to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) failure = errno;
      if (count <= 0) return false;
      offset += static_cast<uint64_t>(count);
      to = to.subspan(static_cast<size_t>(count));
    }
    return true;
  };
  auto note = note_of({bytes, read});
  if (failure != 0) return unreadable(failure);
  return note;
}

}  // namespace tutti::plugin
