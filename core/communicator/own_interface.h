// SPDX-License-Identifier: Apache-2.0
// The interface of this host on which ranks meet, as the setting bootstrap.interface names it.
#pragma once

#include <cstddef>
#include <span>

#include "config/config.h"
#include "tutti/unique_id.h"

namespace tutti::communicator {

/// UniqueId::create() on this interface. The failure names the setting and its place. Any thread.
Result<UniqueId> create_id(const config::Config& config);

/// The id that the first rank of a group serves for the group.
struct Offer {
  Status made;  ///< the failure of create_id()
  UniqueId id;  ///< not set if the rank serves no id
  /// The bytes for the group; no byte if the rank cannot serve an id. Refers to the offer.
  std::span<const std::byte> told() const { return std::as_bytes(std::span(&id, made.ok() ? 1 : 0)); }
};

/// Serves an id if `serves`. Any thread.
Offer offer_id(const config::Config& config, bool serves);

/// The id of the offer that a rank told its group. kRemote: it told no byte. Any thread.
Result<UniqueId> read_id(std::span<const std::byte> told, int rank);

/// Whether an interface of this host fits the setting, which is an error also where it is not used. The failure names
/// the setting and its place. Any thread.
Status check_own_interface(const config::Config& config);

}  // namespace tutti::communicator
