// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/trust.h"

namespace tutti::base {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSecretBytes = 4096;

std::string remedy_of(int error) {
  switch (error) {
    case EFBIG: {
      rlimit limit{};
      ::getrlimit(RLIMIT_FSIZE, &limit);
      if (limit.rlim_cur == RLIM_INFINITY) return "choose another file system";
      return fmt::format("the limit of file sizes is {} bytes; raise it (ulimit -f)", limit.rlim_cur);
    }
    case ENOSPC:
    case EDQUOT:
      return "free some space, or choose another file system";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions, or choose another file";
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    case ENXIO:
      return "it is a FIFO without a reader, or no device; choose a regular file";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    default:
      return "choose another file";
  }
}

Status in_shared_directory(const fs::path& path, std::string_view problem) {
  return {Code::kSystem, fmt::format("{} {}, in a directory that other users may write; choose another directory",
                                     path.string(), problem)};
}

/// Whether users other than this one and root may make names in the directory of the file.
bool is_shared(const fs::path& path) {
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  struct stat found {};
  return ::stat(directory.c_str(), &found) == 0 && (others_may_write(found) || !is_trusted(found.st_uid));
}

/// Checks a file in a directory in which other users may create names: it may be a trap of a user.
Status check_shared(const fs::path& path, const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return in_shared_directory(path, "is no regular file");
  if (found.st_uid != ::geteuid()) return in_shared_directory(path, fmt::format("belongs to user {}", found.st_uid));
  if (found.st_nlink != 1) return in_shared_directory(path, "has several names (hard links)");
  return {};
}

/// Does not truncate, because the file may be a trap of a user.
Result<Fd> open_to_write(const fs::path& path, int flags) {
  const bool shared = is_shared(path);
  const int all_flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | flags | (shared ? O_NOFOLLOW | O_NONBLOCK : 0);
  Fd file(::open(path.c_str(), all_flags, shared ? 0600 : 0666));
  if (!file.valid() && shared && errno == ELOOP) return in_shared_directory(path, "is a symbolic link");
  if (!file.valid()) return file_error(fmt::format("cannot write {}", path.string()));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return file_error(fmt::format("cannot look at {}", path.string()));
  if (shared) TUTTI_TRY(check_shared(path, found));
  return file;
}

}  // namespace

BlockedFileSizeSignal::BlockedFileSizeSignal() {
  sigemptyset(&signal_);
  sigaddset(&signal_, SIGXFSZ);
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &signal_, &before_);
}

BlockedFileSizeSignal::~BlockedFileSizeSignal() {
  const int error = errno;
  constexpr timespec kNow{};
  if (!was_pending_) {
    while (sigtimedwait(&signal_, nullptr, &kNow) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

Status file_error(std::string_view what, int error) {
  const Status status = system_error(what, error);
  return {status.code(), fmt::format("{}; {}", status.text(), remedy_of(error))};
}

Status write_all(int file, std::string_view bytes, std::string_view name) {
  const BlockedFileSizeSignal blocked;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error(fmt::format("cannot write {}", name));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status resize(const Fd& file, uint64_t bytes, std::string_view name) {
  const BlockedFileSizeSignal blocked;
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) return {};
  return file_error(fmt::format("cannot size {} to {} bytes", name, bytes));
}

Result<Fd> open_to_append(const fs::path& path) {
  TUTTI_ASSIGN(Fd file, open_to_write(path, O_APPEND | O_NONBLOCK));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return file_error(fmt::format("cannot look at {}", path.string()));
  if (!S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode)) {
    return Status(Code::kSystem, fmt::format("{} is no regular file; choose another file", path.string()));
  }
  ::fcntl(file.get(), F_SETFL, O_APPEND);  // a terminal may make a writer wait
  return file;
}

Status write_file(const fs::path& path, std::string_view text) {
  TUTTI_ASSIGN(const Fd file, open_to_write(path, 0));
  struct stat found {};
  if (::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode)) TUTTI_TRY(resize(file, 0, path.string()));
  return write_all(file, text, path.string());
}

Status check_writable(const fs::path& path) {
  std::error_code ignored;
  const bool is_new = !fs::exists(fs::symlink_status(path, ignored));
  TUTTI_TRY(open_to_write(path, O_NONBLOCK).status());
  if (is_new) fs::remove(path, ignored);
  return {};
}

Result<std::string> read_text(const fs::path& path, std::string_view name, size_t most) {
  const std::string what = fmt::format("cannot read {}", name);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return Status(Code::kNotFound, std::string(file_error(what).text()));
  std::string text;
  std::array<char, 1 << 16> part{};
  while (text.size() < most) {
    const ssize_t got = ::read(file.get(), part.data(), std::min(part.size(), most - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(what);
    if (got == 0) break;
    text.append(part.data(), static_cast<size_t>(got));
  }
  return text;
}

Status write_secret(const fs::path& path, std::string_view text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() && errno == EEXIST) {
    return {Code::kFailedPrecondition, fmt::format("{} exists already; remove it first", path.string())};
  }
  if (!file.valid()) return file_error(fmt::format("cannot make {}", path.string()));
  return write_all(file, text, path.string());
}

Result<std::string> read_secret(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return file_error(fmt::format("cannot read {}", path.string()));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return file_error(fmt::format("cannot look at {}", path.string()));
  if (!S_ISREG(found.st_mode)) {
    return Status(Code::kFailedPrecondition, fmt::format("{} is no regular file", path.string()));
  }
  if (found.st_uid != 0 && found.st_uid != ::geteuid()) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{} belongs to user {}; it must belong to you, or to root", path.string(), found.st_uid));
  }
  if ((found.st_mode & 077) != 0) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{} holds a secret, and other users may open it (mode {:04o}); make a new secret and run "
                              "chmod 600 on its file",
                              path.string(), found.st_mode & 07777));
  }
  std::array<char, kMaxSecretBytes> bytes{};
  const ssize_t read = ::read(file.get(), bytes.data(), bytes.size());
  if (read < 0) return file_error(fmt::format("cannot read {}", path.string()));
  const std::string_view text(bytes.data(), static_cast<size_t>(read));
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) {
    return Status(Code::kFailedPrecondition, fmt::format("{} is empty", path.string()));
  }
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

}  // namespace tutti::base
