// SPDX-License-Identifier: Apache-2.0
// Which of this host's addresses the hub listens on.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/socket.h"

namespace tutti::bootstrap {

/// One address of a network interface that is up.
struct Interface {
  std::string name;
  base::SocketAddress address;
  bool loopback = false;
};

/// IPv4 before IPv6, without addresses that hold only on their own link.
Result<std::vector<Interface>> interfaces_of_this_host();

/// The first of `found` that the list in `wanted` asks for; UniqueId::create() explains the list. kConfig for a list
/// that cannot be read, kNotFound (naming what there is) when nothing matches. An empty list prefers interfaces that
/// lead out of the host to bridges of containers and virtual machines, and those to the loopback.
/// All that the list asks for, in its order, each with one address; without a list the one preferred.
Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> found, std::string_view wanted);
Result<Interface> choose_interface(std::span<const Interface> found, std::string_view wanted);
/// The same among the interfaces of this host.
Result<Interface> choose_interface(std::string_view wanted);

}  // namespace tutti::bootstrap
