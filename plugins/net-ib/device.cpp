// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

namespace fs = std::filesystem;

/// Gb/s of one lane, by the bit of active_speed; the first three lose a fifth to their 8b/10b code.
double lane_gbits(uint8_t speed) {
  switch (speed) {
    case 1:
      return 2.5 * 0.8;
    case 2:
      return 5 * 0.8;
    case 4:
      return 10 * 0.8;
    case 8:
      return 10.3125 * 64 / 66;
    case 16:
      return 14.0625 * 64 / 66;
    case 32:
      return 25.78125 * 64 / 66;
    case 64:
      return 50;
    case 128:
      return 100;
    default:
      return 0;
  }
}

int lanes(uint8_t width) {
  return width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 0;
}

/// Memory of GPUs can be registered where a kernel module passes it on, or by dmabuf. A registration that must fail
/// tells whether the driver knows dmabuf: EBADF is the answer to the descriptor, anything else the answer to the call.
uint32_t memory_of(ibv_pd* domain) {
  uint32_t memory = TUTTI_MEMORY_HOST;
  std::error_code error;
  if (fs::exists("/sys/module/nvidia_peermem", error) || fs::exists("/sys/module/nv_peer_mem", error))
    memory |= TUTTI_MEMORY_CUDA;
  errno = 0;
  const MemoryRegion never(ibv_reg_dmabuf_mr(domain, 0, 1, 0, -1, 0));
  if (never == nullptr && errno == EBADF) memory |= TUTTI_MEMORY_DMABUF;
  return memory;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) out.push_back(entry.path().filename());
  return out;
}

std::string description(const ibv_async_event& event, const std::string& device) {
  const char* const what = ibv_event_type_str(event.event_type);
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      return fmt::format("port {} of {} is down ({}); check its cable and its switch", event.element.port_num, device,
                         what);
    case IBV_EVENT_PORT_ACTIVE:
      return fmt::format("port {} of {} is up again", event.element.port_num, device);
    case IBV_EVENT_DEVICE_FATAL:
      return fmt::format("{} has failed ({}); its connections are lost; see the kernel log, and reset the device",
                         device, what);
    default:
      return fmt::format("{} reports: {}", device, what);
  }
}

bool is_bad(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_QP_FATAL ||
         type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR;
}

Result<Port> describe(const std::shared_ptr<Device>& device, uint32_t number, const ibv_port_attr& attributes,
                      const Settings& settings, const Subnet& subnet) {
  Port port{device, number, device->name(), attributes, {}, {}};
  if (device->attributes().phys_port_cnt > 1) port.name += fmt::format(":{}", number);
  TUTTI_ASSIGN(std::vector<Gid> table, gid_table(device->context(), number));
  TUTTI_ASSIGN(port.gid, choose_gid(std::move(table), port.is_infiniband(), settings, subnet));
  const Ip of_port = port.is_infiniband() ? Ip() : port.gid.ip;
  TUTTI_ASSIGN(port.exchange, choose_interface(settings.exchange, of_port, device->interfaces()));
  return port;
}

/// Adds the ports of a device that the settings take, and to `why` the reason for each port that cannot be used.
Status add_ports(const std::shared_ptr<Device>& device, const Settings& settings, const Subnet& subnet,
                 std::vector<Port>& ports, std::string& why) {
  for (uint32_t number = 1; number <= device->attributes().phys_port_cnt; ++number) {
    if (!takes(settings.devices, device->name(), number)) {
      why += fmt::format("; {}:{} is excluded by settings.net.ib.devices", device->name(), number);
      continue;
    }
    ibv_port_attr attributes{};
    if (const int error = ibv_query_port(device->context(), static_cast<uint8_t>(number), &attributes); error != 0)
      return system_error(fmt::format("cannot query port {} of {}", number, device->name()), error);
    if (attributes.state != IBV_PORT_ACTIVE) {
      why += fmt::format("; {}:{} is {}, check its cable and its switch", device->name(), number,
                         ibv_port_state_str(attributes.state));
      continue;
    }
    auto port = describe(device, number, attributes, settings, subnet);
    if (port.ok()) {
      ports.push_back(*std::move(port));
    } else {
      why += fmt::format("; {}:{}: {}", device->name(), number, port.status().text());
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Device>> Device::open(ibv_device* raw) {
  std::shared_ptr<Device> device(new Device());
  device->name_ = ibv_get_device_name(raw);
  device->context_.reset(ibv_open_device(raw));
  if (device->context_ == nullptr) {
    return system_error(
        fmt::format("cannot open {}; may this user write to /dev/infiniband/{}, and is it there (in a "
                    "container, pass it in)?",
                    device->name_, raw->dev_name));
  }
  if (const int error = ibv_query_device(device->context(), &device->attributes_); error != 0)
    return system_error(fmt::format("cannot query {}", device->name_), error);
  device->domain_.reset(ibv_alloc_pd(device->context()));
  if (device->domain_ == nullptr)
    return system_error(fmt::format("cannot make a protection domain on {}", device->name_));
  device->registrations_ = std::make_unique<Registrations>(device->domain());
  const int events = device->context()->async_fd;
  fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK);
  const fs::path place = fs::path(raw->ibdev_path) / "device";
  std::error_code error;
  const fs::path path = fs::canonical(place, error);
  if (!error) device->pci_path_ = path.string();
  device->interfaces_ = names_in(place / "net");
  device->memory_ = memory_of(device->domain());
  return device;
}

void Device::read_events(const sdk::Host& host) {
  const std::lock_guard lock(events_);
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    if (event.event_type == IBV_EVENT_DEVICE_FATAL)
      failed_.store(true, std::memory_order_relaxed);  // partner: has_failed
    if (event.event_type == IBV_EVENT_PORT_ERR)
      downs_[static_cast<uint32_t>(event.element.port_num) % kPorts].fetch_add(
          1, std::memory_order_relaxed);  // partner: downs
    host.log(is_bad(event.event_type) ? TUTTI_LOG_WARN : TUTTI_LOG_DEBUG, description(event, name_));
    ibv_ack_async_event(&event);
  }
}

uint32_t Device::downs(uint32_t port) const {
  return downs_[port % kPorts].load(std::memory_order_relaxed);  // partner: read_events
}

std::string Device::fault_of(uint32_t port) const {
  if (has_failed()) return fmt::format("{} has failed", name_);
  ibv_port_attr attributes{};
  if (ibv_query_port(context_.get(), static_cast<uint8_t>(port), &attributes) != 0) return {};
  if (attributes.state == IBV_PORT_ACTIVE) return {};
  return fmt::format("port {} of {} is {}", port, name_, ibv_port_state_str(attributes.state));
}

double Port::speed_gbs() const {
  return lane_gbits(attributes.active_speed) * lanes(attributes.active_width) / 8;
}

bool takes(const std::vector<std::string>& filters, const std::string& device, uint32_t port) {
  const std::string whole = fmt::format("{}:{}", device, port);
  bool wants = true, wanted = false;
  for (const std::string& filter : filters) {
    const bool excludes = filter.starts_with('^');
    const std::string rest = filter.substr(excludes ? 1 : 0);
    const bool exact = rest.starts_with('=');
    const std::string name = rest.substr(exact ? 1 : 0);
    const bool matches = exact ? name == device || name == whole : whole.starts_with(name);
    if (excludes && matches) return false;
    if (excludes) continue;
    wants = false;
    wanted = wanted || matches;
  }
  return wants || wanted;
}

Result<std::vector<Port>> find_ports(const Settings& settings) {
  TUTTI_ASSIGN(const Subnet subnet, Subnet::parse(settings.subnet));
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(ibv_get_device_list(&count),
                                                                           ibv_free_device_list);
  const int error = errno;
  // Without descriptors, libibverbs finds no device and does not say why.
  if (count == 0 && !Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).valid() && (errno == EMFILE || errno == ENFILE))
    return system_error("cannot list the RDMA devices");
  if (list == nullptr && error != ENOSYS) return system_error("cannot list the RDMA devices", error);
  if (list == nullptr || count == 0) {
    return Status(Code::kNotFound,
                  list == nullptr
                      ? "there is no RDMA device: the kernel has no RDMA support (modprobe ib_uverbs)"
                      : "there is no RDMA device in /sys/class/infiniband; is the driver of the device loaded?");
  }
  std::vector<Port> ports;
  std::string why;
  for (int i = 0; i < count; ++i) {
    auto device = Device::open(list.get()[i]);
    const Status added = device.ok() ? add_ports(*device, settings, subnet, ports, why) : device.status();
    if (!added.ok()) why += fmt::format("; {}", added.text());
  }
  if (!ports.empty()) return ports;
  return Status(Code::kUnsupported, fmt::format("no port of the {} RDMA devices can be used{}", count, why));
}

}  // namespace tutti::net_ib
