// SPDX-License-Identifier: Apache-2.0
#include "communicator/own_interface.h"

#include <fmt/format.h>

#include <cstring>

#include "bootstrap/interface.h"

namespace tutti::communicator {
namespace {

constexpr const char* kSetting = "bootstrap.interface";

Status in_setting(const Status& failure, const config::Config& config) {
  return failure.with_context(fmt::format("{} ({})", kSetting, config.origin(kSetting)));
}

}  // namespace

Result<UniqueId> create_id(const config::Config& config) {
  auto id = UniqueId::create(config.joined(kSetting));
  if (id.ok()) return id;
  return in_setting(id.status(), config);
}

Offer offer_id(const config::Config& config, bool serves) {
  if (!serves) return {};
  const auto created = create_id(config);
  return created.ok() ? Offer{{}, *created} : Offer{created.status(), {}};
}

Result<UniqueId> read_id(std::span<const std::byte> told, int rank) {
  UniqueId id;
  if (told.size() != sizeof id)
    return Status(Code::kRemote, fmt::format("rank {} cannot serve a unique id; see the error of this rank", rank));
  std::memcpy(&id, told.data(), sizeof id);
  return id;
}

Status check_own_interface(const config::Config& config) {
  const auto chosen = bootstrap::choose_interface(config.joined(kSetting));
  return chosen.ok() ? Status() : in_setting(chosen.status(), config);
}

}  // namespace tutti::communicator
