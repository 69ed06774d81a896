// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/host.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "bootstrap/process.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

HostIdentity this_host(std::string_view pretended_name) {
  HostIdentity host;
  host.host_name = host_name();
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot_id;
  if (host.boot_id.empty()) host.boot_id = host.host_name;  // /proc is hidden: the next best
  struct stat status = {};
  if (::stat("/proc/self/ns/pid", &status) == 0) host.pid_namespace = status.st_ino;
  host.pretended_name = pretended_name;
  return host;
}

std::vector<std::byte> encode(const HostIdentity& host) {
  const std::array fields = {to_bytes(host.boot_id), to_bytes(fmt::to_string(host.pid_namespace)),
                             to_bytes(host.pretended_name), to_bytes(host.host_name), to_bytes(host.processors)};
  return pack(fields);
}

Result<HostIdentity> decode_host(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const auto fields, entries_of(bytes));
  if (fields.size() != 5) return Status(Code::kInternal, "a host identity has 5 fields");
  HostIdentity host = {.boot_id = to_text(fields[0]),
                       .pretended_name = to_text(fields[2]),
                       .host_name = to_text(fields[3]),
                       .processors = to_text(fields[4])};
  const std::string number = to_text(fields[1]);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), host.pid_namespace);
  if (error != std::errc() || end != number.data() + number.size())
    return Status(Code::kInternal, "the process namespace of a host identity is no number");
  return host;
}

std::vector<int> node_of_rank(std::span<const HostIdentity> hosts) {
  std::map<std::tuple<std::string_view, uint64_t, std::string_view>, int> numbers;
  std::vector<int> nodes;
  nodes.reserve(hosts.size());
  for (const HostIdentity& host : hosts) {
    const auto next = static_cast<int>(numbers.size());
    nodes.push_back(numbers.try_emplace({host.boot_id, host.pid_namespace, host.pretended_name}, next).first->second);
  }
  return nodes;
}

Result<Hosts> Hosts::decode(const Gathered& encoded) {
  Hosts hosts;
  hosts.identity_of_rank_.reserve(encoded.size());
  std::unordered_map<std::string_view, size_t> identities;
  for (const Gathered::Part bytes : encoded) {
    const std::string_view key(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto [known, is_new] = identities.try_emplace(key, hosts.identities_.size());
    if (is_new) {
      TUTTI_ASSIGN(HostIdentity identity, decode_host(bytes));
      hosts.identities_.push_back(std::move(identity));
    }
    hosts.identity_of_rank_.push_back(known->second);
  }
  for (const int node : node_of_rank(hosts.identities_)) hosts.node_of_identity_.push_back(static_cast<uint32_t>(node));
  return hosts;
}

}  // namespace tutti::bootstrap
