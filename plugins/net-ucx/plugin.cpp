// SPDX-License-Identifier: Apache-2.0
// Network "ucx": UCP, the high-level interface of UCX, over the transports that UCX finds.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "connecting.h"
#include "listener.h"
#include "shared.h"
#include "tutti/sdk/network.h"

namespace tutti::net_ucx {
namespace {

class Context : public sdk::NetworkContext {
 public:
  explicit Context(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}

  uint32_t device_count() const override { return 1; }  // UCX spreads data over devices by itself

  Result<tutti_net_properties> properties(uint32_t device) const override {
    TUTTI_TRY(check(device));
    tutti_net_properties properties{};
    properties.struct_size = sizeof properties;
    properties.name = sdk::borrow("ucx");
    properties.memory = TUTTI_MEMORY_HOST;
    properties.max_grouped_recvs = 1;
    properties.max_message_bytes = uint64_t{1} << 40;
    properties.rail = -1;
    return properties;
  }

  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t device, tutti_net_handle& handle) override {
    TUTTI_TRY(check(device));
    return Listener::open(*shared_, handle);
  }
  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t device, const tutti_net_handle& handle) override {
    TUTTI_TRY(check(device));
    return Connecting::start(handle, *shared_);
  }

  Result<int> event_fd() override { return shared_->event_fd(); }
  Result<bool> arm() override {
    const std::lock_guard lock(shared_->lock);
    const LogOfUcx log(shared_->host);
    return shared_->arm();
  }

 private:
  static Status check(uint32_t device) {
    if (device == 0) return {};
    return {Code::kInvalidArgument, fmt::format("there is no device {}; net-ucx has device 0", device)};
  }

  std::unique_ptr<Shared> shared_;
};

class UcxNetwork : public sdk::Network {
 public:
  static constexpr uint64_t capabilities() { return TUTTI_NET_CAP_EVENT_FD; }
  static std::vector<tutti_config_key> settings() {
    return {
        sdk::setting(TUTTI_CONFIG_LIST, "transports", "[]",
                     "UCX's transports, as in UCX_TLS: tcp, sm, rc, ...; empty: UCX_TLS or UCX's choice."),
        sdk::setting(TUTTI_CONFIG_LIST, "devices", "[]",
                     "Network devices, as in UCX_NET_DEVICES: eth0, mlx5_0:1; empty: UCX_NET_DEVICES or all."),
        sdk::setting(TUTTI_CONFIG_TEXT, "interface", "",
                     "Interface of the TCP connections that set up and watch connections; empty: the first that is "
                     "neither a bridge of containers nor the loopback, else a bridge, else the loopback."),
        sdk::setting(TUTTI_CONFIG_DURATION, "silence", "0s",
                     "A connection survives each silence of the other host that is shorter; 0: timeouts.peer_loss.", 0,
                     3'600'000'000'000),
    };
  }

  Status open(const sdk::Host& host) override {
    TUTTI_ASSIGN(interface_address_, address_of_interface(host.text("interface")));
    settings_.transports = host.list("transports");
    settings_.devices = host.list("devices");
    const int64_t silence = host.integer("silence");
    settings_.grace = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::nanoseconds(silence != 0 ? silence : host.integer("timeouts.peer_loss")));
    return {};
  }

  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t /*communicator*/) override {
    TUTTI_ASSIGN(std::unique_ptr<Shared> shared, Shared::create(host(), settings_, interface_address_));
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<Context>(std::move(shared)));
  }

 private:
  UcxSettings settings_;
  SocketAddress interface_address_;
};

}  // namespace
}  // namespace tutti::net_ucx

TUTTI_PLUGIN(tutti::net_ucx::UcxNetwork, "ucx", "0.1.0", "UCX: InfiniBand, RoCE, TCP and shared memory")
