// SPDX-License-Identifier: Apache-2.0
// Network "socket": TCP over any interface. The table of the network contract over the classes of this folder.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "bootstrap/interface.h"
#include "connecting.h"
#include "listener.h"
#include "tutti/plugin/network.h"
#include "tutti/sdk/plugin.h"

namespace tutti::net_socket {
namespace {

struct Device {
  bootstrap::Interface interface;
  std::string pci_path;
  double speed_gbs = 0;
};

/// What sysfs knows of an interface; virtual ones have neither speed nor place.
Device describe(bootstrap::Interface interface) {
  Device device{std::move(interface), {}, 0};
  const std::string base = "/sys/class/net/" + device.interface.name;
  std::ifstream speed(base + "/speed");
  if (double megabits = 0; speed >> megabits && megabits > 0) device.speed_gbs = megabits / 8000;
  std::error_code error;
  const auto path = std::filesystem::canonical(base + "/device", error);
  if (!error) device.pci_path = path.string();
  return device;
}

class SocketNetwork : public sdk::Plugin {
 public:
  using Kind = SocketNetwork;
  static constexpr uint32_t kKind = TUTTI_KIND_NETWORK;
  static constexpr uint64_t capabilities() { return TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_EVENT_FD; }
  static std::vector<tutti_config_key> settings() {
    return {
        sdk::setting(TUTTI_CONFIG_LIST, "interface", "[]",
                     "Interfaces: prefixes (eth), =exact names, subnets (10.0.0.0/8), ^excluded. All that match are "
                     "used; empty: "
                     "the best there is."),
        sdk::setting(TUTTI_CONFIG_TEXT, "family", "auto", "auto, ipv4 or ipv6."),
        sdk::setting(TUTTI_CONFIG_INTEGER, "streams", "2",
                     "TCP streams per connection; large messages use all of them.", 1, 16),
        sdk::setting(TUTTI_CONFIG_SIZE, "stripe_min", "64KiB",
                     "Messages from this size on are cut into one part per stream.", 1, 1 << 30),
        sdk::setting(TUTTI_CONFIG_SIZE, "buffer", "0", "Socket buffers; 0 leaves them to the system.", 0, 1 << 30),
        sdk::setting(TUTTI_CONFIG_DURATION, "silence", "0s",
                     "A connection survives each silence of the other host that is shorter; 0: timeouts.peer_loss.", 0,
                     3'600'000'000'000),
    };
  }
  static const tutti_network_ops* table();

  Status open(const sdk::Host& host) override {
    host_ = host;
    const std::string family = host.text("family");
    if (family != "auto" && family != "ipv4" && family != "ipv6") {
      return {Code::kConfig, fmt::format("settings.net.socket.family is '{}'; it must be auto, ipv4 or ipv6", family)};
    }
    TUTTI_ASSIGN(std::vector<bootstrap::Interface> all, bootstrap::interfaces_of_this_host());
    std::erase_if(all, [&](const bootstrap::Interface& one) {
      return (family == "ipv4" && one.address.family() != AF_INET) ||
             (family == "ipv6" && one.address.family() != AF_INET6);
    });
    TUTTI_ASSIGN(std::vector<bootstrap::Interface> chosen,
                 bootstrap::choose_interfaces(all, fmt::format("{}", fmt::join(host.list("interface"), ","))));
    for (bootstrap::Interface& interface : chosen) devices_.push_back(describe(std::move(interface)));
    return {};
  }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::vector<Device> devices_;
};

struct Context {
  SocketNetwork* plugin;
  Shared shared;
};

/// Handed out as a listener or a connection: what its calls need to report a failure.
struct OpenListener {
  Context* context;
  std::unique_ptr<Listener> listener;
};
struct OpenConnection {
  Context* context;
  std::unique_ptr<Connection> connection;
};

Context& context_of(void* raw) {
  return *static_cast<Context*>(raw);
}
OpenConnection& connection_of(void* raw) {
  return *static_cast<OpenConnection*>(raw);
}

int32_t create(void* self, uint64_t /*communicator*/, void** out) {
  auto* plugin = static_cast<SocketNetwork*>(self);
  const sdk::Host& host = plugin->host();
  return sdk::guarded(host, [&]() -> Status {
    auto context = std::make_unique<Context>(Context{plugin, {}});
    Shared& shared = context->shared;
    shared.host = host;
    shared.streams = static_cast<uint32_t>(host.integer("streams"));
    shared.stripe_bytes = static_cast<uint64_t>(host.integer("stripe_min"));
    shared.buffer_bytes = static_cast<int>(host.integer("buffer"));
    const int64_t silence = host.integer("silence");
    const std::chrono::nanoseconds grace(silence != 0 ? silence : host.integer("timeouts.peer_loss"));
    shared.grace = std::chrono::duration_cast<base::Milliseconds>(grace);
    shared.events = base::Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!shared.events.valid())
      return base::system_error("cannot make an epoll descriptor; check the limit of open files");
    *out = context.release();
    return {};
  });
}

void destroy(void* context) {
  delete static_cast<Context*>(context);
}

int32_t device_count(void* context, uint32_t* count) {
  *count = static_cast<uint32_t>(context_of(context).plugin->devices().size());
  return TUTTI_OK;
}

int32_t properties(void* raw, uint32_t index, tutti_net_properties* out) {
  const Context& context = context_of(raw);
  const auto& devices = context.plugin->devices();
  if (index >= devices.size()) {
    return context.plugin->host().fail(Status(Code::kInvalidArgument, fmt::format("there is no device {}", index)));
  }
  const Device& device = devices[index];
  *out = {};
  out->struct_size = sizeof *out;
  out->name = sdk::borrow(device.interface.name);
  out->pci_path = sdk::borrow(device.pci_path);
  out->memory = TUTTI_MEMORY_HOST;
  out->max_grouped_recvs = Request::kMaxGroup;
  out->speed_gbs = device.speed_gbs;
  out->max_message_bytes = uint64_t{1} << 40;
  out->rail = -1;
  return TUTTI_OK;
}

int32_t listen(void* raw, uint32_t index, tutti_net_handle* handle, void** out) {
  Context& context = context_of(raw);
  return sdk::guarded(context.plugin->host(), [&]() -> Status {
    if (index >= context.plugin->devices().size())
      return {Code::kInvalidArgument, fmt::format("there is no device {}", index)};
    base::SocketAddress address = context.plugin->devices()[index].interface.address;
    address.set_port(0);
    TUTTI_ASSIGN(std::unique_ptr<Listener> listener, Listener::open(address, context.shared));
    *handle = {};
    std::memcpy(handle->bytes, &listener->address(), sizeof(Address));
    *out = new OpenListener{&context, std::move(listener)};
    return {};
  });
}

int32_t connect(void* raw, uint32_t /*device*/, const tutti_net_handle* handle, void** state, void** out) {
  Context& context = context_of(raw);
  return sdk::guarded(context.plugin->host(), [&]() -> int32_t {
    const auto give_up = [&](const Status& why) {
      delete static_cast<Connecting*>(std::exchange(*state, nullptr));
      return context.plugin->host().fail(why);
    };
    if (*state == nullptr) {
      Address address;
      std::memcpy(&address, handle->bytes, sizeof address);
      auto started = Connecting::start(address, context.shared);
      if (!started.ok()) return give_up(started.status());
      *state = std::move(started).value().release();
    }
    auto connection = static_cast<Connecting*>(*state)->advance();
    if (!connection.ok()) return give_up(connection.status());
    if (*connection == nullptr) return TUTTI_AGAIN;
    delete static_cast<Connecting*>(std::exchange(*state, nullptr));
    *out = new OpenConnection{&context, *std::move(connection)};
    return TUTTI_OK;
  });
}

int32_t accept(void* raw, void** /*state*/, void** out) {
  auto& open = *static_cast<OpenListener*>(raw);
  return sdk::guarded(open.context->plugin->host(), [&]() -> int32_t {
    auto connection = open.listener->accept();
    if (!connection.ok()) return open.context->plugin->host().fail(connection.status());
    if (*connection == nullptr) return TUTTI_AGAIN;
    *out = new OpenConnection{open.context, *std::move(connection)};
    return TUTTI_OK;
  });
}

// The kernel copies: there is nothing to register.
int32_t register_memory(void* /*connection*/, void* /*address*/, uint64_t /*bytes*/, uint32_t memory,
                        void** registration) {
  *registration = nullptr;
  return memory == TUTTI_MEMORY_HOST ? TUTTI_OK : TUTTI_UNSUPPORTED;
}

int32_t send(void* raw, const void* address, uint64_t bytes, uint32_t tag, void* /*registration*/, void** request) {
  OpenConnection& open = connection_of(raw);
  auto posted = open.connection->send(static_cast<const uint8_t*>(address), bytes, tag);
  *request = posted.ok() ? *posted : nullptr;
  return posted.ok() ? TUTTI_OK : open.context->plugin->host().fail(posted.status());
}

int32_t recv(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
             void* const* /*registrations*/, void** request) {
  OpenConnection& open = connection_of(raw);
  auto posted = open.connection->recv(count, addresses, bytes, tags);
  *request = posted.ok() ? *posted : nullptr;
  return posted.ok() ? TUTTI_OK : open.context->plugin->host().fail(posted.status());
}

int32_t test(void* raw, int32_t* done, uint64_t* bytes) {
  auto* request = static_cast<Request*>(raw);
  auto tested = request->connection->test(request, bytes);
  *done = tested.ok() && *tested ? 1 : 0;
  return tested.ok() ? TUTTI_OK : request->connection->owner().fail(tested.status());
}

int32_t arm(void* raw) {
  // Edge-triggered: whatever happened since the last time is taken here, and means that there may be work. Listeners
  // are told that events are theirs.
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(context_of(raw).shared.events.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    if (auto* const stirred = static_cast<uint64_t*>(events[static_cast<size_t>(i)].data.ptr)) *stirred = 1;
  }
  return count > 0 ? TUTTI_AGAIN : TUTTI_OK;
}

}  // namespace

const tutti_network_ops* SocketNetwork::table() {
  static const tutti_network_ops ops = {
      sizeof(tutti_network_ops),
      0,
      net_socket::create,
      net_socket::destroy,
      net_socket::device_count,
      net_socket::properties,
      net_socket::listen,
      net_socket::connect,
      net_socket::accept,
      [](void* state) { delete static_cast<Connecting*>(state); },
      register_memory,
      nullptr,
      [](void* /*connection*/, void* /*registration*/) -> int32_t { return TUTTI_OK; },
      net_socket::send,
      net_socket::recv,
      nullptr,
      net_socket::test,
      [](void* connection) { delete static_cast<OpenConnection*>(connection); },
      [](void* listener) { delete static_cast<OpenListener*>(listener); },
      [](void* context, int32_t* fd) -> int32_t {
        *fd = context_of(context).shared.events.get();
        return TUTTI_OK;
      },
      arm,
  };
  return &ops;
}

}  // namespace tutti::net_socket

TUTTI_PLUGIN(tutti::net_socket::SocketNetwork, "socket", "0.1.0", "TCP over IPv4 and IPv6")
