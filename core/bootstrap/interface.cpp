// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "base/descriptors.h"

namespace tutti::bootstrap {
namespace {

/// One entry of the list.
struct Pattern {
  enum class Kind { kPrefix, kExact, kSubnet };
  bool exclude = false;
  Kind kind = Kind::kPrefix;
  std::string name;
  base::SocketAddress subnet;
  size_t subnet_bits = 0;

  bool matches(const Interface& interface) const {
    if (kind == Kind::kExact) return interface.name == name;
    if (kind == Kind::kPrefix) return interface.name.starts_with(name);
    const auto net = subnet.ip();
    const auto ip = interface.address.ip();
    if (ip.size() != net.size()) return false;
    for (size_t bit = 0; bit < subnet_bits; ++bit) {
      const int mask = 0x80 >> (bit % 8);
      if (((ip[bit / 8] ^ net[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

Result<Pattern> parse_subnet(Pattern pattern, std::string_view text) {
  const size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  const std::string_view bits = text.substr(slash + 1);
  std::array<uint8_t, 16> ip = {};
  size_t size = 0;
  if (::inet_pton(AF_INET, host.c_str(), ip.data()) == 1) size = 4;
  if (::inet_pton(AF_INET6, host.c_str(), ip.data()) == 1) size = 16;
  const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), pattern.subnet_bits);
  if (size == 0 || error != std::errc() || end != bits.data() + bits.size() || pattern.subnet_bits > 8 * size)
    return Status(Code::kConfig, fmt::format("'{}' is no subnet; write 10.0.0.0/8 or fd00::/8", text));
  pattern.kind = Pattern::Kind::kSubnet;
  pattern.subnet = base::SocketAddress(std::span(ip).first(size), 0);
  return pattern;
}

Result<std::vector<Pattern>> parse(std::string_view list) {
  std::vector<Pattern> patterns;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    Pattern pattern;
    if (pattern.exclude = item.starts_with('^'); pattern.exclude) item.remove_prefix(1);
    if (item.find('/') != std::string_view::npos) {
      TUTTI_ASSIGN(pattern, parse_subnet(pattern, item));
    } else {
      if (item.starts_with('=')) {
        pattern.kind = Pattern::Kind::kExact;
        item.remove_prefix(1);
      }
      if (item.empty()) return Status(Code::kConfig, "an entry of the list of network interfaces is empty");
      pattern.name = item;
    }
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

/// The order in which interfaces are taken when the list does not say: 0 first.
int preference(const Interface& interface) {
  if (interface.loopback) return 2;
  constexpr std::array kBridges = {"docker", "veth", "virbr", "br-", "cni", "podman", "lxc", "flannel", "cali"};
  return std::any_of(kBridges.begin(), kBridges.end(),
                     [&](const char* name) { return interface.name.starts_with(name); });
}

std::string names_of(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& interface : interfaces)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name, interface.address.ip_text());
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<Interface>> interfaces_of_this_host() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return base::descriptor_error("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const base::SocketAddress address(entry->ifa_addr);
    if (address.family() == AF_UNSPEC || address.is_link_local()) continue;
    found.push_back({entry->ifa_name, address, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Interface& interface) { return interface.address.family() == AF_INET; });
  return found;
}

Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> found, std::string_view wanted) {
  TUTTI_ASSIGN(const std::vector<Pattern> patterns, parse(wanted));
  std::vector<Interface> allowed;
  std::copy_if(found.begin(), found.end(), std::back_inserter(allowed), [&](const Interface& interface) {
    return std::none_of(patterns.begin(), patterns.end(),
                        [&](const Pattern& pattern) { return pattern.exclude && pattern.matches(interface); });
  });
  bool asked = false;
  std::vector<Interface> chosen;
  for (const Pattern& pattern : patterns) {
    if (pattern.exclude) continue;
    asked = true;
    for (const Interface& interface : allowed) {
      const bool known = std::any_of(chosen.begin(), chosen.end(),
                                     [&](const Interface& other) { return other.name == interface.name; });
      if (!known && pattern.matches(interface)) chosen.push_back(interface);
    }
  }
  if (!chosen.empty()) return chosen;
  if (asked || allowed.empty())
    return Status(Code::kNotFound,
                  fmt::format("no network interface that is up matches '{}'; there are: {}", wanted, names_of(found)));
  return std::vector{*std::min_element(allowed.begin(), allowed.end(), [](const Interface& a, const Interface& b) {
    return preference(a) < preference(b);
  })};
}

Result<Interface> choose_interface(std::span<const Interface> found, std::string_view wanted) {
  TUTTI_ASSIGN(const std::vector<Interface> chosen, choose_interfaces(found, wanted));
  return chosen.front();
}

Result<Interface> choose_interface(std::string_view wanted) {
  TUTTI_ASSIGN(const std::vector<Interface> found, interfaces_of_this_host());
  return choose_interface(found, wanted);
}

}  // namespace tutti::bootstrap
