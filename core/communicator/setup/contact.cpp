// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/contact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace tutti::communicator {
namespace {

using Endpoint = transport::Net::Endpoint;

/// Before the endpoints of a network.
struct Head {
  double gbs;
  double latency_us;
  uint64_t ports;
  uint64_t endpoints;
};

Head head_of(const transport::Net& net) {
  const tutti_net_properties& fastest = net.devices().front().properties;
  return {fastest.speed_gbs, fastest.latency_us, net.fastest_devices().size(), net.endpoints().size()};
}

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  const size_t before = bytes.size();
  bytes.resize(before + more.size());
  std::copy(more.begin(), more.end(), bytes.begin() + static_cast<std::ptrdiff_t>(before));
}

/// Takes a value off the front of the bytes; false: they are too short.
template <class T>
bool take(std::span<const std::byte>& bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return true;
}

}  // namespace

uint64_t most_ports(const std::vector<std::vector<NetworkContact>>& ends) {
  uint64_t most = 0;
  for (const auto& of_rank : ends) most = std::max(most, of_rank.empty() ? 0 : of_rank.front().ports);
  return most;
}

double share_gbs(const std::vector<std::vector<NetworkContact>>& ends, size_t network, std::span<const uint32_t> nodes,
                 uint32_t channels, double port_gbs) {
  std::map<uint32_t, double> ranks_of_node;
  for (const uint32_t node : nodes) ++ranks_of_node[node];
  double least = std::numeric_limits<double>::max();
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    const NetworkContact& end = ends[rank][network];
    const auto ports = static_cast<double>(std::max<uint64_t>(end.ports, 1));
    const double used = std::min({ports, static_cast<double>(channels), ports / ranks_of_node.at(nodes[rank])});
    least = std::min(least, used * (end.gbs > 0 ? end.gbs : port_gbs));
  }
  return least;
}

std::vector<std::byte> encode(const Contact& contact, const std::vector<std::unique_ptr<transport::Net>>& nets) {
  std::vector<std::byte> bytes;
  append(bytes, std::as_bytes(std::span(&contact, 1)));
  for (const auto& net : nets) {
    const Head head = head_of(*net);
    append(bytes, std::as_bytes(std::span(&head, 1)));
    append(bytes, std::as_bytes(std::span(net->endpoints())));
  }
  return bytes;
}

Result<Contacted> decode_contact(std::span<const std::byte> bytes) {
  const auto wrong = [size = bytes.size()] {
    return Status(Code::kInternal, fmt::format("{} bytes are not the contact of a rank", size));
  };
  Contacted decoded;
  if (!take(bytes, decoded.contact)) return wrong();
  while (!bytes.empty()) {
    Head head{};
    if (!take(bytes, head) || head.endpoints > bytes.size() / sizeof(Endpoint)) return wrong();
    NetworkContact& network = decoded.networks.emplace_back();
    network.gbs = head.gbs;
    network.latency_us = head.latency_us;
    network.ports = head.ports;
    network.endpoints.resize(head.endpoints);
    for (Endpoint& endpoint : network.endpoints) {
      if (!take(bytes, endpoint)) return wrong();
    }
  }
  return decoded;
}

}  // namespace tutti::communicator
