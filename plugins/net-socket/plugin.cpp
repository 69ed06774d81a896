// SPDX-License-Identifier: Apache-2.0
// Network "socket": TCP over any interface.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "connecting.h"
#include "interface.h"
#include "listener.h"
#include "tutti/sdk/network.h"

namespace tutti::net_socket {
namespace {

struct Device {
  Interface interface;
  std::string pci_path;
  double speed_gbs = 0;
};

/// The facts of sysfs about an interface; virtual interfaces have neither speed nor place.
Device describe(Interface interface) {
  Device device{std::move(interface), {}, 0};
  const std::string base = "/sys/class/net/" + device.interface.name;
  std::ifstream speed(base + "/speed");
  if (double megabits = 0; speed >> megabits && megabits > 0) device.speed_gbs = megabits / 8000;
  std::error_code error;
  const auto path = std::filesystem::canonical(base + "/device", error);
  if (!error) device.pci_path = path.string();
  return device;
}

/// The network of one communicator.
class Context : public sdk::NetworkContext {
 public:
  Context(const std::vector<Device>& devices, Shared shared) : devices_(devices), shared_(std::move(shared)) {}

  uint32_t device_count() const override { return static_cast<uint32_t>(devices_.size()); }
  Result<tutti_net_properties> properties(uint32_t index) const override {
    TUTTI_TRY(check(index));
    const Device& device = devices_[index];
    tutti_net_properties out{};
    out.name = sdk::borrow(device.interface.name);
    out.pci_path = sdk::borrow(device.pci_path);
    out.memory = TUTTI_MEMORY_HOST;
    out.max_grouped_recvs = Request::kMaxGroup;
    out.speed_gbs = device.speed_gbs;
    out.max_message_bytes = uint64_t{1} << 40;
    out.rail = -1;
    return out;
  }
  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t index, tutti_net_handle& handle) override {
    TUTTI_TRY(check(index));
    std::vector<SocketAddress> addresses;
    for (const Interface& interface : rails_of(index, shared_.rails)) addresses.push_back(interface.address);
    TUTTI_ASSIGN(std::unique_ptr<Listener> listener, Listener::open(addresses, shared_));
    handle = {};
    std::memcpy(handle.bytes, &listener->address(), sizeof(Address));
    return std::unique_ptr<sdk::Listener>(std::move(listener));
  }
  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t index, const tutti_net_handle& handle) override {
    Address address;
    std::memcpy(&address, handle.bytes, sizeof address);
    TUTTI_ASSIGN(std::unique_ptr<Connecting> connecting,
                 Connecting::start(address, shared_, rails_of(index, shared_.rails)));
    return std::unique_ptr<sdk::Connecting>(std::move(connecting));
  }

  Result<int> event_fd() override { return shared_.events.get(); }
  /// Edge-triggered: all events since the last call are taken here, and mean that there may be work. Listeners are told
  /// of their events.
  Result<bool> arm() override {
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(shared_.events.get(), events.data(), events.size(), 0);
    if (count > 0) shared_.arousals->fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      if (auto* const stirred = static_cast<uint64_t*>(events[static_cast<size_t>(i)].data.ptr)) *stirred = 1;
    }
    return count > 0;
  }

 private:
  /// The interfaces of `count` rails, from a device on. They start again after the last device.
  std::vector<Interface> rails_of(uint32_t index, uint32_t count) const {
    std::vector<Interface> out;
    for (uint32_t i = 0; i < count; ++i) out.push_back(devices_[(index + i) % devices_.size()].interface);
    return out;
  }
  Status check(uint32_t index) const {
    if (index < devices_.size()) return {};
    return {Code::kInvalidArgument, fmt::format("there is no device {}", index)};
  }

  const std::vector<Device>& devices_;
  const Shared shared_;
};

class SocketNetwork : public sdk::Network {
 public:
  static constexpr uint64_t capabilities() { return TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_EVENT_FD; }
  static std::vector<tutti_config_key> settings() {
    return {
        sdk::setting(TUTTI_CONFIG_LIST, "interface", "[]",
                     "Interfaces: prefixes (eth), =exact names, subnets (10.0.0.0/8), ^excluded. All that match are "
                     "used; empty: "
                     "the best there is."),
        sdk::setting(TUTTI_CONFIG_TEXT, "family", "auto", "auto, ipv4 or ipv6."),
        sdk::setting(TUTTI_CONFIG_INTEGER, "streams", "1",
                     "TCP streams per connection; large messages use all of them.", 1, 16),
        sdk::setting(TUTTI_CONFIG_INTEGER, "rails", "1",
                     "Interfaces of a connection; each has a stream, and the others take over its data if it fails. "
                     "All ranks need the same number.",
                     1, kMaxRails),
        sdk::setting(TUTTI_CONFIG_SIZE, "stripe_min", "64KiB",
                     "Messages from this size on are cut into one part per stream.", 1, 1 << 30),
        sdk::setting(TUTTI_CONFIG_SIZE, "buffer", "0", "Socket buffers; 0 leaves them to the system.", 0, 1 << 30),
        sdk::setting(TUTTI_CONFIG_TEXT, "congestion", "",
                     "Congestion control of TCP, for example cubic; empty leaves it to the system."),
        sdk::setting(TUTTI_CONFIG_DURATION, "silence", "0s",
                     "A connection survives each silence of the other host that is shorter; 0: timeouts.peer_loss.", 0,
                     3'600'000'000'000),
        sdk::setting(TUTTI_CONFIG_TEXT, "tls", "off",
                     "Protects data by TLS 1.3: off; on, by the kernel where it can; user, by OpenSSL alone. All ranks "
                     "or none."),
    };
  }

  Status open(const sdk::Host& host) override {
    const std::string family = host.text("family");
    if (family != "auto" && family != "ipv4" && family != "ipv6") {
      return {Code::kConfig, fmt::format("settings.net.socket.family is '{}'; it must be auto, ipv4 or ipv6", family)};
    }
    if (const std::string tls = host.text("tls"); tls != "off" && tls != "on" && tls != "user")
      return {Code::kConfig, fmt::format("settings.net.socket.tls is '{}'; it must be off, on or user", tls)};
    const int64_t rails = host.integer("rails");
    TUTTI_TRY(check_rails(host, rails));
    TUTTI_ASSIGN(std::vector<Interface> all, interfaces_of_this_host());
    std::erase_if(all, [&](const Interface& one) {
      return (family == "ipv4" && one.address.family() != AF_INET) ||
             (family == "ipv6" && one.address.family() != AF_INET6);
    });
    TUTTI_ASSIGN(std::vector<Interface> chosen,
                 choose_interfaces(all, fmt::format("{}", fmt::join(host.list("interface"), ",")), rails > 1));
    TUTTI_TRY(check_congestion(host.text("congestion"), chosen.front().address.family()));
    for (Interface& interface : chosen) devices_.push_back(describe(std::move(interface)));
    if (static_cast<uint64_t>(rails) > devices_.size()) {
      host.log(TUTTI_LOG_WARN,
               fmt::format("settings.net.socket.rails is {}, but settings.net.socket.interface gives {} "
                           "interface(s), the first one {}: rails share interfaces",
                           rails, devices_.size(), devices_.front().interface.name));
    }
    return {};
  }

  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t /*communicator*/) override {
    Shared shared;
    shared.host = host();
    TUTTI_ASSIGN(shared.id, sdk::make_nonce());
    for (const Device& device : devices_) shared.interfaces.push_back(device.interface);
    shared.rails = static_cast<uint32_t>(host().integer("rails"));
    shared.streams = static_cast<uint32_t>(host().integer("streams"));
    shared.stripe_bytes = static_cast<uint64_t>(host().integer("stripe_min"));
    shared.buffer_bytes = static_cast<int>(host().integer("buffer"));
    shared.congestion = host().text("congestion");
    // A connection that the host gives up must take no other connection with it.
    shared.pairs_up = !host().boolean("net.failover");
    const int64_t silence = host().integer("silence");
    const std::chrono::nanoseconds grace(silence != 0 ? silence : host().integer("timeouts.peer_loss"));
    shared.grace = std::chrono::duration_cast<Milliseconds>(grace);
    shared.events = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!shared.events.valid()) return system_error("cannot make an epoll descriptor");
    if (const std::string tls = host().text("tls"); tls != "off") {
      Tls::Options options;
      options.kernel = tls == "on";
      options.patience = shared.limit();
      options.log = [host = host()](const std::string& text) { host.log(TUTTI_LOG_INFO, text); };
      TUTTI_ASSIGN(shared.tls, Tls::create(std::move(options)));
    }
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<Context>(devices_, std::move(shared)));
  }

 private:
  static Status check_rails(const sdk::Host& host, int64_t rails) {
    if (rails == 1) return {};
    if (const int64_t streams = host.integer("streams"); streams != 1) {
      return {Code::kConfig,
              fmt::format("settings.net.socket.rails is {} and settings.net.socket.streams is {}: a rail "
                          "has one stream; set one of them to 1",
                          rails, streams)};
    }
    if (const std::string tls = host.text("tls"); tls != "off") {
      return {Code::kConfig, fmt::format("settings.net.socket.rails is {} and settings.net.socket.tls is {}: rails go "
                                         "without TLS; set rails to 1 or tls to off",
                                         rails, tls)};
    }
    return {};
  }

  static Status check_congestion(const std::string& name, int family) {
    if (name.empty()) return {};
    TUTTI_ASSIGN(const Fd socket, make_socket(family));
    const int error = set_congestion(socket, name);
    if (error == 0) return {};
    std::string allowed;
    std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_allowed_congestion_control"), allowed);
    return {Code::kConfig, fmt::format("settings.net.socket.congestion is '{}', which the kernel refuses: {}; it "
                                       "allows: {} (sysctl net.ipv4.tcp_allowed_congestion_control)",
                                       name, errno_text(error), allowed.empty() ? "unknown" : allowed)};
  }

  std::vector<Device> devices_;
};

}  // namespace
}  // namespace tutti::net_socket

TUTTI_PLUGIN(tutti::net_socket::SocketNetwork, "socket", "0.1.0", "TCP over IPv4 and IPv6")
