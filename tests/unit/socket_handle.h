// SPDX-License-Identifier: Apache-2.0
// Handles of the socket network.
#pragma once

#include <cstring>

#include "net-socket/wire.h"
#include "tutti/plugin/network.h"

namespace tutti::test {

/// The content of a handle.
inline net_socket::Address address_of(const tutti_net_handle& handle) {
  net_socket::Address address;
  std::memcpy(&address, handle.bytes, sizeof address);
  return address;
}

}  // namespace tutti::test
