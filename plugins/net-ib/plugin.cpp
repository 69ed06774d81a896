// SPDX-License-Identifier: Apache-2.0
// Network "ib": InfiniBand and RoCE by libibverbs.
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <memory>
#include <utility>
#include <vector>

#include "connecting.h"
#include "device.h"
#include "events.h"
#include "listener.h"
#include "receiver.h"
#include "settings.h"
#include "tutti/sdk/network.h"

namespace tutti::net_ib {
namespace {

class Context : public sdk::NetworkContext {
 public:
  Context(const std::vector<Port>& ports, Shared shared) : ports_(ports), shared_(std::move(shared)) {}

  uint32_t device_count() const override { return static_cast<uint32_t>(ports_.size()); }

  Result<tutti_net_properties> properties(uint32_t index) const override {
    TUTTI_ASSIGN(const Port* const port, port_at(index));
    const Device& device = *port->device;
    tutti_net_properties out{};
    out.port = port->number;
    out.name = sdk::borrow(port->name);
    out.pci_path = sdk::borrow(device.pci_path());
    out.guid = device.attributes().sys_image_guid;
    out.memory = device.memory();
    out.max_grouped_recvs = Receiver::kMaxGroup;
    out.speed_gbs = port->speed_gbs();
    out.max_message_bytes = port->attributes.max_msg_sz;
    out.max_connections =
        static_cast<uint32_t>(device.attributes().max_qp) / (shared_.settings.queue_pairs * shared_.settings.rails);
    out.rail = -1;
    return out;
  }

  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t index, tutti_net_handle& handle) override {
    TUTTI_ASSIGN(std::vector<Port> ports, rails_of(index));
    TUTTI_ASSIGN(std::unique_ptr<Listener> listener, Listener::open(shared_, std::move(ports), handle));
    return std::unique_ptr<sdk::Listener>(std::move(listener));
  }

  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t index, const tutti_net_handle& handle) override {
    TUTTI_ASSIGN(std::vector<Port> ports, rails_of(index));
    TUTTI_ASSIGN(std::unique_ptr<Connecting> connecting, Connecting::start(shared_, std::move(ports), handle));
    return std::unique_ptr<sdk::Connecting>(std::move(connecting));
  }

  Result<int> event_fd() override { return shared_.events->fd(); }
  Result<bool> arm() override { return shared_.events->arm(); }

 private:
  Result<const Port*> port_at(uint32_t index) const {
    if (index < ports_.size()) return &ports_[index];
    return Status(Code::kInvalidArgument, fmt::format("there is no device {}; there are {}", index, ports_.size()));
  }

  /// The port, and the ports after it.
  Result<std::vector<Port>> rails_of(uint32_t index) const {
    TUTTI_ASSIGN(const Port* const first, port_at(index));
    std::vector<Port> out{*first};
    while (out.size() < shared_.settings.rails && out.size() < ports_.size())
      out.push_back(ports_[(index + out.size()) % ports_.size()]);
    return out;
  }

  const std::vector<Port>& ports_;
  const Shared shared_;
};

class IbNetwork : public sdk::Network {
 public:
  static constexpr uint64_t capabilities() {
    return TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_DEVICE_MEMORY | TUTTI_NET_CAP_DMABUF | TUTTI_NET_CAP_FLUSH |
           TUTTI_NET_CAP_EVENT_FD;
  }
  static std::vector<tutti_config_key> settings() { return Settings::keys(); }

  Status open(const sdk::Host& host) override {
    TUTTI_ASSIGN(settings_, Settings::read(host));
    // Before any registration: a process that forks must not lose registered pages to its child.
    if (const int error = ibv_fork_init(); error != 0)
      host.log(TUTTI_LOG_WARN, fmt::format("ibv_fork_init: {}; this process must not fork", errno_text(error)));
    TUTTI_ASSIGN(ports_, find_ports(settings_));
    for (const Port& port : ports_) {
      host.log(TUTTI_LOG_INFO,
               fmt::format("{} at {}, {:.1f} GB/s; queue pair numbers go over {} ({})", port.name, port.gid.to_string(),
                           port.speed_gbs(), port.exchange.name, port.exchange.ip.to_string()));
    }
    return {};
  }

  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t /*communicator*/) override {
    Shared shared{host(), settings_, nullptr};
    TUTTI_ASSIGN(shared.events, Events::create(host()));
    for (const Port& port : ports_) TUTTI_TRY(shared.events->add(port.device));
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<Context>(ports_, std::move(shared)));
  }

 private:
  Settings settings_;
  std::vector<Port> ports_;
};

}  // namespace
}  // namespace tutti::net_ib

TUTTI_PLUGIN(tutti::net_ib::IbNetwork, "ib", "0.1.0", "InfiniBand and RoCE by libibverbs")
