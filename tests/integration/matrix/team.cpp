// SPDX-License-Identifier: Apache-2.0
#include "integration/matrix/team.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/fd.h"

namespace tutti::matrix {
namespace {

std::vector<std::string>& namespaces() {
  static std::vector<std::string> files;
  return files;
}

}  // namespace

void set_namespaces(std::vector<std::string> files) {
  namespaces() = std::move(files);
}

void enter_namespace(int rank, int rank_count) {
  const auto& files = namespaces();
  if (files.empty()) return;
  const std::string& file = files[static_cast<size_t>(rank) * files.size() / static_cast<size_t>(rank_count)];
  const base::Fd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid() && setns(fd.get(), CLONE_NEWNET) == 0) return;
  const std::string why = std::generic_category().message(errno);
  fmt::print(stderr, "matrix_test: cannot enter the network namespace '{}': {}\n", file, why);
  std::exit(1);
}

}  // namespace tutti::matrix
