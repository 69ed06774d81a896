// SPDX-License-Identifier: Apache-2.0
#include "transport/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "base/descriptors.h"
#include "log/log.h"
#include "transport/checked_network.h"
#include "transport/failover.h"
#include "transport/kept_tasks.h"
#include "transport/link_state.h"
#include "transport/net_tasks.h"

namespace tutti::transport {
namespace {

/// A thread inside the plugin cannot be taken back, so the process must end.
void end_process() {
  log::error("an entry of the network's plugin still has not returned: this process ends with exit code 1");
  std::_Exit(1);
}

}  // namespace

Net::Net(Options options) : options_(std::move(options)) {
  if (options_.incoming == nullptr) options_.incoming = std::make_shared<Incoming>();
  progress::EntryWatch::Options watch;
  watch.network = options_.name;
  watch.deadline = options_.call_limit;
  watch.on_deadline = options_.on_failure;
  watch.end_process = end_process;
  watch_ = std::make_unique<progress::EntryWatch>(std::move(watch));
  setup_mark_ = std::make_unique<progress::EntryMark>(watch_.get(), fmt::format("at rank {}", options_.rank));
  if (!options_.check_plugins) return;
  CheckedNetwork::Options checked{options_.ops, options_.plugin, options_.capabilities, options_.last_failure, {}};
  checked.on_closing = [this](const Violation& broken) {
    const Status status = broken.status(options_.name, fmt::format("at rank {}", options_.rank));
    log::error("{}", status.text());
    if (options_.on_failure) options_.on_failure(status);
  };
  checked_ = std::make_unique<CheckedNetwork>(std::move(checked));
  options_.ops = &checked_->ops();
  options_.plugin = checked_.get();
  options_.last_failure = CheckedNetwork::take_failure_text;
}

Result<std::unique_ptr<Net>> Net::create(Options options) {
  std::unique_ptr<Net> net(new Net(std::move(options)));
  const tutti_network_ops& ops = *net->options_.ops;
  base::widen_descriptor_table();  // connect and accept open descriptors, and must not sleep
  const int32_t created = net->setup_mark_->call(
      "create", [&] { return ops.create(net->options_.plugin, net->options_.communicator, &net->context_); });
  if (created != TUTTI_OK) {
    const int32_t code = created;
    return net->failure("cannot open a context", code);
  }
  TUTTI_TRY(net->choose_devices());
  TUTTI_TRY(net->listen());
  if (net->has_events()) TUTTI_TRY(net->check_event_fd());
  net->engine_ = net->options_.engine;
  if (net->engine_ == nullptr) {
    TUTTI_ASSIGN(net->engine_, progress::Engine::create({net->options_.on_failure, net->options_.polling_threads}));
  }
  net->acceptor_ = std::make_shared<AcceptTask>(*net);
  return net;
}

/// Without the descriptor, the engine would have to poll.
Status Net::check_event_fd() {
  int32_t fd = -1;
  const int32_t code = setup_mark_->call("event_fd", [&] { return options_.ops->event_fd(context_, &fd); });
  return code == TUTTI_OK ? Status() : failure("gives no event descriptor, although it claims one", code);
}

Status Net::choose_devices() {
  uint32_t count = 0;
  const auto ask = [&] { return options_.ops->device_count(context_, &count); };
  if (int32_t code = setup_mark_->call("device_count", ask); code != TUTTI_OK) {
    return failure("cannot list its devices", code);
  }
  uint64_t stride = sizeof(NetHello);
  for (const auto& layout : options_.keys.protocols) stride = std::max(stride, SlotMemory::message_bytes(layout));
  for (uint32_t index = 0; index < count; ++index) {
    Device device{index};
    device.properties.struct_size = sizeof device.properties;
    const auto describe = [&] { return options_.ops->properties(context_, index, &device.properties); };
    if (int32_t code = setup_mark_->call("properties", describe); code != TUTTI_OK) {
      return failure("cannot describe a device", code);
    }
    const bool usable =
        (device.properties.memory & TUTTI_MEMORY_HOST) != 0 && device.properties.max_message_bytes >= stride;
    if (usable) devices_.push_back(device);
  }
  if (devices_.empty()) {
    return Status(Code::kNotFound,
                  fmt::format("network '{}' has no usable device among {} (a usable device reports "
                              "TUTTI_MEMORY_HOST and max_message_bytes of at least {}); check its settings",
                              options_.name, count, stride));
  }
  std::stable_sort(devices_.begin(), devices_.end(),
                   [](const Device& a, const Device& b) { return a.properties.speed_gbs > b.properties.speed_gbs; });
  // A device of unknown or much lower speed is no second rail.
  const double fastest = devices_.front().properties.speed_gbs;
  const auto slow = std::find_if(devices_.begin() + 1, devices_.end(), [&](const Device& device) {
    return fastest <= 0 || device.properties.speed_gbs < fastest / 2;
  });
  devices_.erase(slow, devices_.end());
  fastest_ = static_cast<size_t>(std::count_if(
      devices_.begin(), devices_.end(), [&](const Device& device) { return device.properties.speed_gbs == fastest; }));
  if (fastest_ == 1) return {};
  std::map<std::string_view, uint32_t> ranks_of_host;
  for (const std::string& host : options_.hosts) positions_.push_back(ranks_of_host[host]++);
  return {};
}

std::vector<uint32_t> Net::fastest_devices() const {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < fastest_; ++i) indices.push_back(devices_[i].index);
  return indices;
}

Status Net::listen() {
  for (Device& device : devices_) {
    Endpoint endpoint{device.index, {}, {}};
    const tutti_str name = device.properties.name;
    std::copy_n(name.data, std::min<size_t>(name.size, endpoint.device_name.size() - 1), endpoint.device_name.data());
    const auto open = [&] { return options_.ops->listen(context_, device.index, &endpoint.handle, &device.listener); };
    if (int32_t code = setup_mark_->call("listen", open); code != TUTTI_OK) {
      return failure("cannot listen", code);
    }
    endpoints_.push_back(endpoint);
  }
  return {};
}

uint64_t Net::max_message_bytes() const {
  uint64_t least = UINT64_MAX;
  for (const Device& device : devices_) least = std::min(least, device.properties.max_message_bytes);
  return least;
}

bool Net::registers(uint32_t memory) const {
  return std::all_of(devices_.begin(), devices_.end(),
                     [&](const Device& device) { return (device.properties.memory & memory) != 0; });
}

/// Two ranks at different positions use the own devices of one of the two positions, at both ends. The position whose
/// device has fewer connections on the first machine is chosen, and both machines use it.
void Net::share_devices(std::vector<uint32_t> machine_of_rank, std::vector<std::vector<uint32_t>> own_devices) {
  machines_ = std::move(machine_of_rank);
  own_devices_ = std::move(own_devices);
  const std::vector<uint32_t>& first = own_devices_.front();
  const size_t count = first.size();
  std::map<uint32_t, uint32_t> connections;  // by device
  for (const uint32_t device : first) ++connections[device];
  between_.assign(count * count, 0);
  for (uint32_t a = 0; a < count; ++a) {
    between_[a * count + a] = a;
    for (uint32_t b = a + 1; b < count; ++b) {
      const uint32_t chosen = connections[first[b]] < connections[first[a]] ? b : a;
      between_[a * count + b] = between_[b * count + a] = chosen;
      connections[first[chosen]] += 2;
    }
  }
}

bool Net::has_device(uint32_t index) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const Device& device) { return device.index == index; });
}

uint32_t Net::own_device(const Key& key) const {
  if (has_device(key.device)) return key.device;
  const uint32_t shared = shared_device(options_.rank, key.peer);
  return has_device(shared) ? shared : devices_.front().index;
}

/// The ranks of a host share devices of equal speed. Ranks at equal positions of two hosts use their own devices. Both
/// directions between two ranks use the same devices. If own devices are not known, ranks at equal positions have
/// devices of equal indices, and a rank's neighbours have the next devices.
uint32_t Net::shared_device(uint32_t rank, uint32_t peer) const {
  if (positions_.empty()) return devices_.front().index;
  const uint32_t a = positions_[rank];
  const uint32_t b = positions_[peer];
  const std::vector<uint32_t> unknown;
  const std::vector<uint32_t>& own = own_devices_.empty() ? unknown : own_devices_[machines_[rank]];
  if (own.empty()) return devices_[(a + b) / 2 % fastest_].index;
  const size_t count = own_devices_.front().size();
  const uint32_t position = std::max(a, b) < count ? between_[a * count + b] : (a + b) / 2;
  return own[position % own.size()];
}

const Net::Endpoint& Net::peer_endpoint(const Key& key) const {
  if (key.peer_device != TUTTI_NO_NET) return endpoint_of(key.peer, key.peer_device);
  return endpoint_of(key.peer, has_device(key.device) ? key.device : shared_device(key.peer, options_.rank));
}

const Net::Endpoint& Net::endpoint_of(uint32_t rank, uint32_t wanted) const {
  for (const Endpoint& endpoint : peers_[rank]) {
    if (endpoint.device == wanted) return endpoint;
  }
  return peers_[rank].front();
}

void Net::set_peers(std::vector<std::vector<Endpoint>> endpoints, uint32_t channels) {
  if (channels > 0) options_.keys.channels = channels;
  peers_ = std::move(endpoints);
  senders_.resize(peers_.size() * options_.keys.size());
  receivers_.resize(peers_.size() * options_.keys.size());
  if (options_.failover != nullptr) receipts_.resize(receivers_.size());
  engine_->add_source({options_.ops, context_, has_events(), watch(), "at " + own_place(),
                       [this](std::string_view doing, int32_t code) { return failure(doing, code); }});
  engine_->add(acceptor_);
}

void Net::close() {
  if (!peers_.empty()) engine_->stop();  // before the objects that its tasks use are destroyed
  senders_.clear();
  receivers_.clear();
  acceptor_.reset();
}

Net::~Net() {
  close();
  for (const Device& device : devices_) {
    if (device.listener == nullptr) continue;
    setup_mark_->call("close_listener", [&] { options_.ops->close_listener(device.listener); });
  }
  if (context_ != nullptr) setup_mark_->call("destroy", [&] { options_.ops->destroy(context_); });
}

std::shared_ptr<Receipts> Net::receipts_of(const Key& key) {
  std::shared_ptr<Receipts>& receipts = receipts_[place_of(key)];
  if (receipts == nullptr) receipts = std::make_shared<Receipts>(options_.keys.protocols[key.protocol].slot_count);
  return receipts;
}

std::shared_ptr<SlotTask> Net::make_sender(const Key& key) {
  if (options_.failover == nullptr) {
    return std::make_shared<SendTask>(*this, key, own_device(key), peer_endpoint(key).handle, &engine_->bell());
  }
  Failover& failover = *options_.failover;
  auto task = std::make_shared<KeptSendTask>(*this, key, failover, receipts_of(key), &engine_->bell());
  for (const Net* net : failover.nets()) {
    net->expect(key, Purpose::kAcknowledgements, failover.index_of(*this), task);
    net->expect(key, Purpose::kLoss, failover.index_of(*this), task);
  }
  return task;
}

std::shared_ptr<SlotTask> Net::make_receiver(const Key& key) {
  if (options_.failover == nullptr) {
    auto task = std::make_shared<ReceiveTask>(*this, key, &engine_->bell());
    acceptor_->expect(key, task);
    return task;
  }
  Failover& failover = *options_.failover;
  auto task = std::make_shared<KeptReceiveTask>(*this, key, failover, receipts_of(key), &engine_->bell());
  for (const Net* net : failover.nets()) net->expect(key, Purpose::kData, failover.index_of(*this), task);
  return task;
}

tutti_connection* Net::sender(const Key& key) {
  auto& task = senders_[place_of(key)];
  if (task == nullptr) {
    task = make_sender(key);
    engine_->add(task);
  }
  return &task->connection();
}

tutti_connection* Net::receiver(const Key& key) {
  auto& task = receivers_[place_of(key)];
  if (task == nullptr) {
    task = make_receiver(key);
    engine_->add(task);
  }
  return &task->connection();
}

Net::Pair Net::pair(const Key& key) {
  std::shared_ptr<SlotTask>& sender = senders_[place_of(key)];
  std::shared_ptr<SlotTask>& receiver = receivers_[place_of(key)];
  sender = make_sender(key);
  receiver = make_receiver(key);
  return {sender, receiver};
}

Route Net::route(const Key& key) const {
  return {this, own_device(key), peer_endpoint(key).device};
}

std::unique_ptr<Dial> Net::dial(const Key& key) const {
  return dial(key, {});
}

std::unique_ptr<Dial> Net::dial(const Key& key, const Introduction& as) const {
  return std::make_unique<Dial>(*this, key, own_device(key), peer_endpoint(key).handle, as);
}

void Net::expect(const Key& key, std::shared_ptr<Awaiter> awaiter) {
  acceptor_->expect(key, std::move(awaiter));
}

void Net::expect(const Key& key, Purpose purpose, uint32_t home, std::shared_ptr<Rejoiner> rejoiner) const {
  acceptor_->expect(key, purpose, home, std::move(rejoiner));
}

void Net::hurry(bool begins) const {
  if (acceptor_ != nullptr) acceptor_->hurry(begins);
}

Status Net::count_connection(uint32_t device) const {
  const auto found =
      std::find_if(devices_.begin(), devices_.end(), [&](const Device& one) { return one.index == device; });
  const uint32_t limit = found->properties.max_connections;
  if (++found->connections <= limit || limit == 0) return {};
  return {Code::kUnsupported,
          fmt::format("device '{}' of network '{}' takes {} connections of a rank, and this rank needs more; lower "
                      "channels, or let the network use more devices",
                      endpoint_of(options_.rank, device).device_name.data(), options_.name, limit)};
}

void Net::uncount_connection(uint32_t device) const {
  const auto lock = lock_setup();
  for (const Device& one : devices_) {
    if (one.index == device) --one.connections;
  }
}

std::string Net::place(uint32_t rank, const Endpoint& endpoint) const {
  const std::string host = rank < options_.hosts.size() ? fmt::format("host {}, ", options_.hosts[rank]) : "";
  return fmt::format("rank {} ({}{})", rank, host, endpoint.device_name.data());
}

std::string Net::ends(const Key& key, bool sends) const {
  const std::string here = place(options_.rank, endpoint_of(options_.rank, own_device(key)));
  const std::string there = place(key.peer, peer_endpoint(key));
  return fmt::format("from {} to {}", sends ? here : there, sends ? there : here);
}

std::string Net::own_place() const {
  return place(options_.rank, endpoints_.front());
}

std::string Net::ends(uint32_t own_device) const {
  return "at " + place(options_.rank, endpoint_of(options_.rank, own_device));
}

void Net::add(LinkState& state) const {
  const std::lock_guard lock(states_mutex_);
  states_.push_back(&state);
}

void Net::remove(LinkState& state) const {
  const std::lock_guard lock(states_mutex_);
  std::erase(states_, &state);
}

std::string Net::describe(std::optional<uint32_t> peer) const {
  constexpr size_t kMost = 8;  // channels and protocols have connections of their own
  const std::lock_guard lock(states_mutex_);
  std::string text;
  size_t count = 0;
  for (const LinkState* state : states_) {
    const bool counts = peer ? state->key().peer == *peer : state->owes();
    if (!counts || ++count > kMost) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", state->describe());
  }
  if (count == 0) return {};
  if (count > kMost) text += fmt::format(", and {} more connections", count - kMost);
  return fmt::format("network '{}', {}", options_.name, text);
}

Status Net::violation(std::string_view where) const {
  if (checked_ == nullptr) return {};
  const auto broken = CheckedNetwork::take_violation();
  if (!broken) return {};
  Status status = broken->status(options_.name, where);
  const std::lock_guard lock(violation_mutex_);
  if (violation_.ok()) violation_ = status;
  return status;
}

Status Net::contract() const {
  const std::lock_guard lock(violation_mutex_);
  return violation_;
}

Status Net::failure(std::string_view doing, int32_t code) const {
  TUTTI_TRY(violation(endpoints_.empty() ? fmt::format("at rank {}", options_.rank) : "at " + own_place()));
  const std::string why = options_.last_failure();
  return Status(static_cast<Code>(code), fmt::format("network '{}' {}: {}", options_.name, doing,
                                                     why.empty() ? "it does not say why (PLG-14)" : why));
}

}  // namespace tutti::transport
