// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>

namespace tutti::net_ib {
namespace {

constexpr double kTimeoutUnit_s = 4.096e-6;  // unit of the InfiniBand specification
constexpr uint8_t kLongestTimeout = 31;

struct Word {
  const char* text;
  int value;
};

Result<int> one_of(const sdk::Host& host, const char* name, std::span<const Word> words) {
  const std::string text = host.text(name);
  std::string allowed;
  for (const Word& word : words) {
    if (text == word.text) return word.value;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", word.text);
  }
  return Status(Code::kConfig, fmt::format("settings.net.ib.{} is '{}'; allowed: {}", name, text, allowed));
}

/// The smallest exponent with which all attempts together last as long as a peer may be silent.
uint8_t timeout_for(std::chrono::milliseconds silence, uint8_t retry_count) {
  const double one_s = static_cast<double>(silence.count()) / 1000 / (retry_count + 1);
  uint8_t timeout = 1;
  while (timeout < kLongestTimeout && kTimeoutUnit_s * static_cast<double>(1u << timeout) < one_s) ++timeout;
  return timeout;
}

}  // namespace

std::vector<tutti_config_key> Settings::keys() {
  using sdk::setting;
  return {
      setting(TUTTI_CONFIG_LIST, "devices", "[]",
              "RDMA ports: prefixes (mlx5), =exact names (=mlx5_0, =mlx5_0:1), ^excluded. Empty: every active port."),
      setting(TUTTI_CONFIG_INTEGER, "gid_index", "-1",
              "Place in the GID table of the port; -1: chosen by roce, family and subnet.", -1, 255),
      setting(TUTTI_CONFIG_TEXT, "roce", "auto", "RoCE version of the GID: auto (v2 before v1), v1 or v2."),
      setting(TUTTI_CONFIG_TEXT, "family", "auto", "Address family of the GID: auto (ipv4 before ipv6), ipv4 or ipv6."),
      setting(TUTTI_CONFIG_TEXT, "subnet", "", "Takes only GIDs in this subnet (10.0.0.0/8, fd00::/8)."),
      setting(TUTTI_CONFIG_TEXT, "exchange", "",
              "Network interface over which ranks exchange queue pair numbers. Empty: that of the port, else the first "
              "that is up."),
      setting(TUTTI_CONFIG_INTEGER, "rails", "1",
              "Ports of a connection. If one of them fails, the data goes on over the others.", 1, kMaxRails),
      setting(TUTTI_CONFIG_INTEGER, "queue_pairs", "1",
              "Queue pairs of a connection on each port; large messages use all of them.", 1, kMaxQueuePairs),
      setting(TUTTI_CONFIG_SIZE, "split_min", "128KiB",
              "Messages from this size on are cut into one part per queue pair.", 1, 1 << 30),
      setting(TUTTI_CONFIG_SIZE, "inline", "220", "Messages up to this size are copied into the work request.", 0,
              1024),
      setting(TUTTI_CONFIG_BOOL, "relaxed_ordering", "true",
              "Lets the device write a message to memory in any order, where it can."),
      setting(TUTTI_CONFIG_INTEGER, "service_level", "0", "Service level (InfiniBand), or priority (RoCE).", 0, 15),
      setting(TUTTI_CONFIG_INTEGER, "traffic_class", "0", "Traffic class in the global route header.", 0, 255),
      setting(TUTTI_CONFIG_INTEGER, "pkey_index", "0", "Place in the partition key table of the port.", 0, 65535),
      setting(TUTTI_CONFIG_INTEGER, "retry_count", "6",
              "Times that a packet is sent again before the connection breaks. Soft-RoCE takes 7 as for ever.", 0, 7),
      setting(TUTTI_CONFIG_INTEGER, "timeout", "0",
              "Time until a packet is sent again: 4.096 us * 2^timeout. 0: chosen from timeouts.peer_loss.", 0, 31),
      setting(TUTTI_CONFIG_TEXT, "flush", "auto",
              "Read after received data, so that a GPU sees the data: auto (memory of GPUs), always or never."),
  };
}

Result<Settings> Settings::read(const sdk::Host& host) {
  constexpr Word kRoce[] = {{"auto", 0}, {"v1", 1}, {"v2", 2}};
  constexpr Word kFamily[] = {{"auto", 0}, {"ipv4", AF_INET}, {"ipv6", AF_INET6}};
  constexpr Word kFlush[] = {{"auto", static_cast<int>(Flush::kAuto)},
                             {"always", static_cast<int>(Flush::kAlways)},
                             {"never", static_cast<int>(Flush::kNever)}};
  Settings out;
  out.devices = host.list("devices");
  out.gid_index = static_cast<int>(host.integer("gid_index"));
  TUTTI_ASSIGN(out.roce, one_of(host, "roce", kRoce));
  TUTTI_ASSIGN(out.family, one_of(host, "family", kFamily));
  TUTTI_ASSIGN(const int flush, one_of(host, "flush", kFlush));
  out.flush = static_cast<Flush>(flush);
  out.subnet = host.text("subnet");
  out.exchange = host.text("exchange");
  out.rails = static_cast<uint32_t>(host.integer("rails"));
  out.queue_pairs = static_cast<uint32_t>(host.integer("queue_pairs"));
  if (out.rails * out.queue_pairs > kMaxQueuePairs) {
    return Status(Code::kConfig,
                  fmt::format("settings.net.ib.rails is {} and settings.net.ib.queue_pairs is {}; their product may be "
                              "{} at most",
                              out.rails, out.queue_pairs, kMaxQueuePairs));
  }
  out.split_bytes = static_cast<uint64_t>(host.integer("split_min"));
  out.inline_bytes = static_cast<uint32_t>(host.integer("inline"));
  out.relaxed_ordering = host.boolean("relaxed_ordering");
  out.service_level = static_cast<uint8_t>(host.integer("service_level"));
  out.traffic_class = static_cast<uint8_t>(host.integer("traffic_class"));
  out.pkey_index = static_cast<uint16_t>(host.integer("pkey_index"));
  out.retry_count = static_cast<uint8_t>(host.integer("retry_count"));
  out.timeout = static_cast<uint8_t>(host.integer("timeout"));
  out.peer_loss = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(host.integer("timeouts.peer_loss")));
  // A host that is gone is noticed on one rail after the other.
  if (out.timeout == 0) out.timeout = timeout_for(out.peer_loss / out.rails, out.retry_count);
  return out;
}

double Settings::give_up_s() const {
  return kTimeoutUnit_s * static_cast<double>(1u << timeout) * (retry_count + 1);
}

}  // namespace tutti::net_ib
