// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "plugin/network_names.h"

namespace tutti::nccl_net {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kNetwork = "TUTTI_NET";
constexpr std::string_view kReceives = "TUTTI_NET_RECEIVES";
constexpr uint32_t kMostReceives = 8;  // of NCCL

std::optional<std::string> find(const Variables& variables, std::string_view name) {
  for (const auto& [key, value] : variables) {
    if (key == name && !value.empty()) return value;
  }
  return std::nullopt;
}

Result<uint32_t> receives_of(const Variables& variables) {
  const std::string text = find(variables, kReceives).value_or("1");
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= 1 && number <= kMostReceives) return number;
  return Status(Code::kConfig, fmt::format("environment {}: '{}' is not a number of buffers; it may be 1 to {}",
                                           kReceives, text, kMostReceives));
}

}  // namespace

Result<Settings> read_settings() {
  config::LoadOptions load;
  load.environment = config::process_environment();
  load.settings_origin = "environment TUTTI_NET";
  if (const auto network = find(load.environment, kNetwork)) load.settings.emplace_back("network", *network);
  TUTTI_ASSIGN(const uint32_t most_receives, receives_of(load.environment));
  TUTTI_ASSIGN(config::Config config, config::Config::load(load));
  std::vector<std::string> networks = plugin::fixed_networks(config);
  if (networks.empty()) networks = config.list("plugins.network");
  return Settings{std::move(config), std::move(networks), most_receives};
}

}  // namespace tutti::nccl_net
