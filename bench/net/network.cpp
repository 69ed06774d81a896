// SPDX-License-Identifier: Apache-2.0
#include "net/network.h"

#include <fmt/format.h>
#include <poll.h>

#include <stdexcept>

#include "config/config.h"
#include "plugin/search.h"

namespace tutti::net_bench {
namespace {

template <class T>
T required(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return *std::move(result);
}

std::shared_ptr<plugin::Plugin> open(const std::string& name,
                                     std::vector<std::pair<std::string, std::string>> settings) {
  config::LoadOptions options;
  options.environment = config::process_environment();
  options.settings = std::move(settings);
  options.settings_origin = "--set";
  config::Config config = required(config::Config::load(options));
  const auto directories = plugin::search_path(config.list("plugins.path"));
  const auto file = required(plugin::find(plugin::Kind::kNetwork, name, directories));
  return required(plugin::Plugin::open(
      required(plugin::Image::load(plugin::Kind::kNetwork, name, file, config.text("plugins.trust"))), config));
}

}  // namespace

Network::Network(const std::string& name, std::vector<std::pair<std::string, std::string>> settings, uint32_t device,
                 Patience patience)
    : patience_(patience), plugin_(open(name, std::move(settings))), name_(name), device_(device) {
  ops_ = plugin_->ops<tutti_network_ops>();
  check(ops_->create(plugin_->self(), 1, &context_), "open a context");
  properties_.struct_size = sizeof properties_;
  check(ops_->properties(context_, device_, &properties_), "describe the device");
  check(ops_->listen(context_, device_, &handle_, &listener_), "listen");
  const bool has_events = (plugin_->capabilities() & TUTTI_NET_CAP_EVENT_FD) != 0;
  if (has_events) check(ops_->event_fd(context_, &event_fd_), "get an event descriptor");
}

Network::~Network() {
  for (void* connection : connections_) ops_->close_connection(connection);
  if (listener_ != nullptr) ops_->close_listener(listener_);
  if (context_ != nullptr) ops_->destroy(context_);
}

void Network::check(int32_t code, const char* doing) const {
  if (code == TUTTI_OK) return;
  throw std::runtime_error(fmt::format("network '{}' cannot {}: {}", name_, doing, plugin::take_failure_text()));
}

void Network::give_up(const char* what) const {
  throw std::runtime_error(
      fmt::format("network '{}': nothing moved for {} s while waiting for {}", name_, patience_.limit.count(), what));
}

void Network::sleep() {
  if (event_fd_ < 0) return;  // a network without events is polled
  const int32_t code = ops_->arm(context_);
  if (code == TUTTI_AGAIN) return;
  check(code, "arm its event descriptor");
  pollfd ready{event_fd_, POLLIN, 0};
  ::poll(&ready, 1, 100);
}

void* Network::connect(const tutti_net_handle& handle) {
  void *state = nullptr, *connection = nullptr;
  wait("a connection to the peer", [&](uint64_t&) {
    const int32_t code = ops_->connect(context_, device_, &handle, &state, &connection);
    if (code != TUTTI_AGAIN) check(code, "connect");
    return connection != nullptr;
  });
  return connections_.emplace_back(connection);
}

void* Network::accept() {
  void *state = nullptr, *connection = nullptr;
  wait("a connection from the peer", [&](uint64_t&) {
    const int32_t code = ops_->accept(listener_, &state, &connection);
    if (code != TUTTI_AGAIN) check(code, "accept");
    return connection != nullptr;
  });
  return connections_.emplace_back(connection);
}

void* Network::register_memory(void* connection, std::vector<uint8_t>& memory) {
  void* registration = nullptr;
  check(ops_->register_memory(connection, memory.data(), memory.size(), TUTTI_MEMORY_HOST, &registration),
        "register memory");
  return registration;
}

void Network::deregister_memory(void* connection, void* registration) {
  if (registration != nullptr) check(ops_->deregister_memory(connection, registration), "deregister memory");
}

void* Network::send(void* connection, const std::vector<uint8_t>& memory, uint64_t bytes, void* registration) {
  void* request = nullptr;
  const int32_t code = ops_->send(connection, memory.data(), bytes, 0, registration, &request);
  if (code != TUTTI_AGAIN) check(code, "send");
  return request;
}

void* Network::recv(void* connection, std::vector<uint8_t>& memory, uint64_t bytes, void* registration) {
  void* address = memory.data();
  const uint32_t tag = 0;
  void* request = nullptr;
  const int32_t code = ops_->recv(connection, 1, &address, &bytes, &tag, &registration, &request);
  if (code != TUTTI_AGAIN) check(code, "receive");
  return request;
}

bool Network::test(void* request, uint64_t bytes) {
  int32_t done = 0;
  uint64_t got = bytes;
  const int32_t code = ops_->test(request, &done, &got);
  if (code != TUTTI_AGAIN) check(code, "complete a message");
  if (done != 0 && got != bytes) {
    throw std::runtime_error(fmt::format("network '{}' delivers {} bytes instead of {}", name_, got, bytes));
  }
  return done != 0;
}

}  // namespace tutti::net_bench
