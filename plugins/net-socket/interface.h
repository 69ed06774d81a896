// SPDX-License-Identifier: Apache-2.0
// Which network interfaces of this host the plugin uses.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "system.h"

namespace tutti::net_socket {

/// One address of a network interface that is up.
struct Interface {
  std::string name;
  SocketAddress address;
  bool loopback = false;
};

/// IPv4 before IPv6, without addresses that hold only on their own link.
Result<std::vector<Interface>> interfaces_of_this_host();

/// All of `found` that the list in `wanted` asks for, in the order of the list, each with one address. Entries are
/// separated by commas: prefixes ("eth"), "=exact" names, subnets ("10.0.0.0/8"), "^excluded" names. kConfig for a list
/// that cannot be read, kNotFound (naming the interfaces) if nothing matches. A list that is empty, or that only
/// excludes, gives one interface: the first that leads out of the host, else a bridge of containers or virtual
/// machines, else the loopback. With `several`, all interfaces that lead out of the host are taken instead of the
/// first.
Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> found, std::string_view wanted,
                                                 bool several = false);

/// Whether the interface is not there, is down, or has no link. `socket`: any socket.
bool lacks_link(const std::string& name, const Fd& socket);

}  // namespace tutti::net_socket
