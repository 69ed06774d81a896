// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/contact.h"

#include <algorithm>
#include <cstring>

namespace tutti::communicator {

std::vector<std::byte> encode(const Contact& contact, const transport::Net* net) {
  const auto doors = net == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(net->doors()));
  std::vector<std::byte> bytes(sizeof contact + doors.size());
  std::memcpy(bytes.data(), &contact, sizeof contact);
  std::copy(doors.begin(), doors.end(), bytes.begin() + sizeof contact);
  return bytes;
}

std::vector<transport::Net::Door> decode_doors(std::span<const std::byte> bytes) {
  using Door = transport::Net::Door;
  std::vector<Door> doors((bytes.size() - std::min(bytes.size(), sizeof(Contact))) / sizeof(Door));
  if (!doors.empty()) std::memcpy(doors.data(), bytes.data() + sizeof(Contact), doors.size() * sizeof(Door));
  return doors;
}

}  // namespace tutti::communicator
