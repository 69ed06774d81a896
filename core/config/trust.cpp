// SPDX-License-Identifier: Apache-2.0
#include "config/trust.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "base/fork.h"
#include "base/trust.h"
#include "log/log.h"

namespace tutti::config {
namespace {

bool is_new(const std::string& file) {
  static std::mutex& mutex = base::process_mutex();
  static auto* const warned = new std::set<std::string>;  // never destroyed: threads may load while the process ends
  const std::lock_guard lock(mutex);
  return warned->insert(file).second;
}

}  // namespace

Status check_trust(const std::filesystem::path& file, std::string_view what, std::string_view trust) {
  if (trust == "any") return {};
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(file, error);
  if (error) return {};
  const std::string danger = base::danger_of(real);
  if (danger.empty()) return {};
  const std::string text = fmt::format("{} {} {}", what, real.string(), danger);
  if (base::acts_with_privileges()) {
    return {Code::kConfig, fmt::format("{}; root uses only files that no other user can change: correct owner and "
                                       "mode (chown, chmod), or set TUTTI_PLUGINS_TRUST=any",
                                       text)};
  }
  if (is_new(real.string())) log::warn("{}; correct owner and mode, or set plugins.trust to any", text);
  return {};
}

}  // namespace tutti::config
