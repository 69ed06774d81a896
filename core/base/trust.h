// SPDX-License-Identifier: Apache-2.0
// The users who can change a file: its owner, the users that its mode permits, and the users that may change a
// directory on its path.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace tutti::base {

/// Whether the mode lets users other than the owner and root write. A group does not count if it is root's or has
/// the number of the owner: then it is the owner's private group.
bool others_may_write(const struct stat& file);

/// root, this user, or the owner of the library or program that holds this code: code of that owner runs already.
bool is_trusted(uid_t owner);

/// The way in which a different user may change the file, or replace it; empty: only trusted users may. `file`:
/// absolute, without links. The text follows the name of the file: "is owned by user 1000", or "is in /opt/x, ...".
std::string danger_of(const std::filesystem::path& file);

/// Whether files of other users must not decide for this process: it is root's, or runs with more rights than
/// its caller (AT_SECURE). The root of a user namespace is an ordinary user.
bool acts_with_privileges();

}  // namespace tutti::base
