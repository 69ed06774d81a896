// SPDX-License-Identifier: Apache-2.0
// Files that a process reads or writes, and files with secrets. A file that grows beyond the limit of file sizes, or
// fills its file system, is a Status here, never the signal SIGXFSZ. The application's handling of signals stays as it
// is.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace tutti::base {

/// Blocks SIGXFSZ for the calling thread while it lives, and takes away the signal that a refused write has sent. The
/// write then returns EFBIG.
class BlockedFileSizeSignal {
 public:
  BlockedFileSizeSignal();
  ~BlockedFileSizeSignal();
  BlockedFileSizeSignal(const BlockedFileSizeSignal&) = delete;
  BlockedFileSizeSignal& operator=(const BlockedFileSizeSignal&) = delete;

 private:
  sigset_t signal_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// kSystem: "cannot write FILE: meaning of errno; remedy", for limits, full file systems, permissions. `what`: the text
/// before the colon.
Status file_error(std::string_view what, int error = errno);

/// Writes all bytes. `name` is for texts.
Status write_all(int file, std::string_view bytes, std::string_view name);
inline Status write_all(const Fd& file, std::string_view bytes, std::string_view name) {
  return write_all(file.get(), bytes, name);
}
/// Sets the size of a file.
Status resize(const Fd& file, uint64_t bytes, std::string_view name);

/// Opens a file to append to, and makes it if need be. Never waits: a FIFO is an error. In a directory that other users
/// may write, the file must be a plain file of this user, without links to it, and is made with mode 0600.
Result<Fd> open_to_append(const std::filesystem::path& path);
/// Replaces the contents of a file, or makes it. In a directory that other users may write, as open_to_append().
Status write_file(const std::filesystem::path& path, std::string_view text);

/// Whether write_file() can open the file now. A file that it makes for this question is removed again.
Status check_writable(const std::filesystem::path& path);

/// The contents of a file, or its first `most` bytes. `name` is for texts, for example "the plan file p.yaml". A pipe
/// is read to its end. kNotFound: the file cannot be opened. kSystem: it cannot be read.
Result<std::string> read_text(const std::filesystem::path& path, std::string_view name, size_t most);

/// Makes a file that only this user can read. A file that is there already is an error.
Status write_secret(const std::filesystem::path& path, std::string_view text);
/// The contents of a file that holds a secret, without surrounding white space. kFailedPrecondition: the file belongs
/// to a different user, or other users may read or write it.
Result<std::string> read_secret(const std::filesystem::path& path);

}  // namespace tutti::base
