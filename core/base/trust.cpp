// SPDX-License-Identifier: Apache-2.0
#include "base/trust.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "base/fd.h"

namespace tutti::base {
namespace {

namespace fs = std::filesystem;

/// The owner of the library or program that holds this code.
uid_t owner_of_code() {
  static const int kHere = 0;
  Dl_info info{};
  struct stat image {};
  const bool known = ::dladdr(&kHere, &info) != 0 && info.dli_fname != nullptr && info.dli_fname[0] == '/';
  if (known && ::stat(info.dli_fname, &image) == 0) return image.st_uid;
  return ::stat("/proc/self/exe", &image) == 0 ? image.st_uid : 0;
}

/// Whether all users of the system have their own numbers here.
bool in_first_user_namespace() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside = 0;
  uint64_t outside = 0;
  uint64_t count = 0;
  if (!(map >> inside >> outside >> count)) return true;  // a kernel without user namespaces
  return inside == 0 && outside == 0 && count == UINT32_MAX;
}

/// In a user namespace, the system's files have the user id of `nobody`.
bool is_unmapped(uid_t owner) {
  constexpr uid_t kOverflow = 65534;
  static const bool first = in_first_user_namespace();
  return owner == kOverflow && !first;
}

std::string mode_of(const struct stat& file) {
  return fmt::format("mode {:04o}", file.st_mode & 07777);
}

/// A user that may write to a directory can replace its files, unless the directory is sticky.
std::string danger_of_directory(const fs::path& directory) {
  struct stat found {};
  if (::lstat(directory.c_str(), &found) != 0) {
    return fmt::format("is in {}, which cannot be looked at: {}", directory.string(), errno_text(errno));
  }
  if (!is_trusted(found.st_uid)) return fmt::format("is in {}, which user {} owns", directory.string(), found.st_uid);
  if (!others_may_write(found) || (found.st_mode & S_ISVTX) != 0) return {};
  return fmt::format("is in {}, which other users may write ({})", directory.string(), mode_of(found));
}

}  // namespace

bool others_may_write(const struct stat& file) {
  const bool shared_group = file.st_gid != 0 && file.st_gid != file.st_uid;
  return (file.st_mode & S_IWOTH) != 0 || ((file.st_mode & S_IWGRP) != 0 && shared_group);
}

bool is_trusted(uid_t owner) {
  static const uid_t code_owner = owner_of_code();
  return owner == 0 || owner == ::geteuid() || owner == code_owner || is_unmapped(owner);
}

std::string danger_of(const fs::path& file) {
  struct stat found {};
  if (::lstat(file.c_str(), &found) != 0) return fmt::format("cannot be looked at: {}", errno_text(errno));
  if (!is_trusted(found.st_uid)) return fmt::format("is owned by user {} ({})", found.st_uid, mode_of(found));
  // Bytes that are written to a device of root, such as /dev/stdin, cannot be read from it later.
  if (S_ISCHR(found.st_mode) && found.st_uid == 0) return {};
  if (others_may_write(found)) return fmt::format("may be written by other users ({})", mode_of(found));
  for (fs::path directory = file.parent_path();; directory = directory.parent_path()) {
    std::string danger = danger_of_directory(directory);
    if (!danger.empty() || directory == directory.parent_path()) return danger;
  }
}

bool acts_with_privileges() {
  static const bool first = in_first_user_namespace();
  return (::geteuid() == 0 && first) || ::getauxval(AT_SECURE) != 0;
}

}  // namespace tutti::base
