// SPDX-License-Identifier: Apache-2.0
// Rules that any rule may find violated, and rules about devices and capabilities.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr int kRepeats = 8;

uint32_t count_devices(Side& side, void* context) {
  uint32_t count = 0;
  side.call(Entry::kDeviceCount, [&] { return side.ops().device_count(context, &count); });
  return count;
}

/// All properties as text, for comparisons.
std::string describe_device(Side& side, void* context, uint32_t device) {
  tutti_net_properties p{};
  p.struct_size = sizeof p;
  side.call(Entry::kProperties, [&] { return side.ops().properties(context, device, &p); });
  return fmt::format(
      "'{}' port {} guid {:x} path '{}' memory {:#x} groups {} speed {} latency {} message {} "
      "connections {} rail {}",
      std::string_view(p.name.data, p.name.size), p.port, p.guid, std::string_view(p.pci_path.data, p.pci_path.size),
      p.memory, p.max_grouped_recvs, p.speed_gbs, p.latency_us, p.max_message_bytes, p.max_connections, p.rail);
}

void compare_devices(Side& side, void* context, const std::vector<std::string>& expected) {
  const uint32_t count = count_devices(side, context);
  if (count != expected.size()) {
    side.violate(fmt::format("device_count says {} after it said {}", count, expected.size()));
  }
  for (uint32_t device = 0; device < count; ++device) {
    const std::string now = describe_device(side, context, device);
    if (now == expected[device]) continue;
    side.violate(fmt::format("device {} was {}, and is now {}", device, expected[device], now));
  }
}

void test_stable(Side& side) {
  std::vector<std::string> devices;
  for (uint32_t i = 0, count = count_devices(side, side.context()); i < count; ++i) {
    devices.push_back(describe_device(side, side.context(), i));
  }
  if (devices.empty()) side.violate("device_count says 0, but the plugin opens on this machine");
  for (int i = 0; i < kRepeats; ++i) {
    compare_devices(side, side.context(), devices);
    void* second = nullptr;
    side.call(Entry::kCreate,
              [&] { return side.ops().create(side.options().plugin->self(), side.options().seed + 1, &second); });
    compare_devices(side, second, devices);
    side.call_void(Entry::kDestroy, [&] { side.ops().destroy(second); });
  }
}

void test_properties(Side& side) {
  for (uint32_t device = 0, count = count_devices(side, side.context()); device < count; ++device) {
    tutti_net_properties p{};
    p.struct_size = sizeof p;
    side.call(Entry::kProperties, [&] { return side.ops().properties(side.context(), device, &p); });
    const auto require = [&](bool holds, const std::string& text) {
      if (!holds) side.violate(fmt::format("device {}: {}", device, text));
    };
    const std::string wrong_size = plugin::wrong_size_of_properties(p);
    require(wrong_size.empty(), wrong_size);
    require(p.name.data != nullptr && p.name.size > 0 && p.name.size < 64, "its name is empty or longer than 63 bytes");
    const std::string_view name(p.name.data, p.name.size);
    require(std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; }),
            "its name has a control character");
    require((p.memory & TUTTI_MEMORY_HOST) != 0, fmt::format("memory is {:#x}, without TUTTI_MEMORY_HOST", p.memory));
    require(p.max_grouped_recvs >= 1, "max_grouped_recvs is 0");
    require(p.max_message_bytes >= 65536, fmt::format("max_message_bytes is {}, below 64 KiB", p.max_message_bytes));
    require(std::isfinite(p.speed_gbs) && p.speed_gbs >= 0, fmt::format("speed_gbs is {}", p.speed_gbs));
    require(std::isfinite(p.latency_us) && p.latency_us >= 0, fmt::format("latency_us is {}", p.latency_us));
    require(p.rail >= -1, fmt::format("rail is {}", p.rail));
  }
}

void test_capabilities(Side& side) {
  const uint64_t has = side.capabilities();
  const auto& p = side.properties();
  if ((has & TUTTI_NET_CAP_GROUPED_RECV) != 0 && p.max_grouped_recvs < 2) {
    side.violate(fmt::format("the plugin claims grouped receives, but max_grouped_recvs is {}", p.max_grouped_recvs));
  }
  if ((p.memory & TUTTI_MEMORY_CUDA) != 0 && (has & TUTTI_NET_CAP_DEVICE_MEMORY) == 0) {
    side.violate("the device reports TUTTI_MEMORY_CUDA without TUTTI_NET_CAP_DEVICE_MEMORY");
  }
  if ((p.memory & TUTTI_MEMORY_DMABUF) != 0 && (has & TUTTI_NET_CAP_DMABUF) == 0) {
    side.violate("the device reports TUTTI_MEMORY_DMABUF without TUTTI_NET_CAP_DMABUF");
  }
  if ((has & TUTTI_NET_CAP_EVENT_FD) == 0) return;
  int32_t fd = -1, again = -1;
  side.call(Entry::kEventFd, [&] { return side.ops().event_fd(side.context(), &fd); });
  side.call(Entry::kEventFd, [&] { return side.ops().event_fd(side.context(), &again); });
  pollfd ready{fd, POLLIN, 0};
  if (fd < 0 || poll(&ready, 1, 0) < 0 || (ready.revents & POLLNVAL) != 0) {
    side.violate(fmt::format("the plugin claims an event descriptor, but event_fd gives {}, which is not open", fd));
  }
  if (fd != again) side.violate(fmt::format("event_fd gives {} and then {}", fd, again));
}

constexpr std::array kGeneral = {
    rule(1),
    rule(2),
    rule(3),
    rule(4),
};
constexpr std::array kDevices = {
    rule(5, test_stable),
    rule(6, test_properties),
    rule(7, test_capabilities),
};

}  // namespace

std::span<const Rule> general_rules() {
  return kGeneral;
}
std::span<const Rule> device_rules() {
  return kDevices;
}

std::string_view to_string(Where where) {
  constexpr std::array<std::string_view, kWhereCount> kNames = {"one process", "two processes", "two namespaces"};
  return kNames[static_cast<uint32_t>(where)];
}

const Rule* find_rule(std::string_view name) {
  const Rule* found = nullptr;
  for_each_rule([&](const Rule& rule) {
    if (rule.number == name || (rule.name == name && rule.number.starts_with("NET-"))) found = &rule;
  });
  return found;
}

}  // namespace tutti::tools::plugin_test
