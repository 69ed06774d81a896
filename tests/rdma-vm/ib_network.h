// SPDX-License-Identifier: Apache-2.0
// The ib network through its table alone, as the host calls it: one open plugin on one RDMA device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"

namespace tutti::test {

inline constexpr std::chrono::seconds kLimit{20};

class IbNetwork {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  /// `devices`: "rxe0", or several with commas between.
  static Result<std::shared_ptr<plugin::Plugin>> open(const std::string& devices, Settings settings = {}) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings = std::move(settings);
    std::string list = "[=" + devices + "]";
    for (size_t comma = 0; (comma = list.find(',', comma)) != std::string::npos; ++comma) list.insert(comma + 1, "=");
    options.settings.emplace_back("settings.net.ib.devices", list);
    auto config = required(config::Config::load(options));
    static const auto image = required(
        plugin::Image::load(plugin::Kind::kNetwork, "ib", TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-ib.so"));
    return plugin::Plugin::open(image, config);
  }

  explicit IbNetwork(const std::string& devices, const Settings& settings = {})
      : plugin_(required(open(devices, settings))) {
    require(ops().create(plugin_->self(), 1, &context_) == TUTTI_OK, plugin::take_failure_text());
    require(ops().listen(context_, 0, &handle_, &listener_) == TUTTI_OK, plugin::take_failure_text());
  }
  ~IbNetwork() {
    ops().close_listener(listener_);
    ops().destroy(context_);
  }
  const tutti_network_ops& ops() const { return *plugin_->ops<tutti_network_ops>(); }
  void* context() const { return context_; }
  void* listener() const { return listener_; }
  const tutti_net_handle& handle() const { return handle_; }

  /// One accept, which must not find a connection.
  void refuse_strays(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      void *state = nullptr, *connection = nullptr;
      EXPECT_EQ(ops().accept(listener_, &state, &connection), TUTTI_AGAIN);
    }
  }

 private:
  std::shared_ptr<plugin::Plugin> plugin_;
  void* context_ = nullptr;
  void* listener_ = nullptr;
  tutti_net_handle handle_{};
};

/// Memory that a connection has registered.
class Memory {
 public:
  Memory(const tutti_network_ops& ops, void* connection, std::vector<uint8_t> data)
      : ops_(ops), connection_(connection), data_(std::move(data)) {
    if (data_.empty()) return;
    require(ops.register_memory(connection, data_.data(), data_.size(), TUTTI_MEMORY_HOST, &registration_) == TUTTI_OK,
            plugin::take_failure_text());
  }
  ~Memory() {
    if (registration_ != nullptr) ops_.deregister_memory(connection_, registration_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::vector<uint8_t>& data() { return data_; }
  void* registration() const { return registration_; }

 private:
  const tutti_network_ops& ops_;
  void* connection_;
  std::vector<uint8_t> data_;
  void* registration_ = nullptr;
};

/// A connection from one device to the other: both ends, driven by one thread.
class Pair {
 public:
  explicit Pair(const IbNetwork::Settings& settings = {}, const std::string& from = "rxe0",
                const std::string& to = "rxe1")
      : from_(from, settings), to_(to, settings) {
    connect();
  }
  ~Pair() {
    close_sender();
    if (receiver_ != nullptr) ops().close_connection(receiver_);
  }
  const tutti_network_ops& ops() const { return from_.ops(); }
  IbNetwork& from() { return from_; }
  IbNetwork& to() { return to_; }
  void* sender() const { return sender_; }
  void* receiver() const { return receiver_; }
  void close_sender() {
    if (sender_ != nullptr) ops().close_connection(std::exchange(sender_, nullptr));
  }

  std::unique_ptr<Memory> outgoing(std::vector<uint8_t> data) {
    return std::make_unique<Memory>(ops(), sender_, std::move(data));
  }
  std::unique_ptr<Memory> incoming(size_t bytes) {
    return std::make_unique<Memory>(ops(), receiver_, std::vector<uint8_t>(bytes, 0xa5));
  }
  void* send(Memory& memory, uint32_t tag) { return send(memory, memory.data().size(), tag); }
  void* send(Memory& memory, size_t bytes, uint32_t tag) {
    void* request = nullptr;
    EXPECT_EQ(ops().send(sender_, memory.data().data(), bytes, tag, memory.registration(), &request), TUTTI_OK)
        << plugin::take_failure_text();
    return request;
  }
  void* recv(Memory& memory, uint32_t tag) {
    void* address = memory.data().data();
    const uint64_t bytes = memory.data().size();
    void* const registration = memory.registration();
    void* request = nullptr;
    EXPECT_EQ(ops().recv(receiver_, 1, &address, &bytes, &tag, &registration, &request), TUTTI_OK)
        << plugin::take_failure_text();
    return request;
  }
  /// Tests a request until it is done or fails; its code, or TUTTI_TIMEOUT.
  int32_t finish(void* request, uint64_t* bytes = nullptr) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < end) {
      int32_t done = 0;
      const int32_t code = ops().test(request, &done, bytes);
      if (code != TUTTI_OK || done != 0) return code;
    }
    return TUTTI_TIMEOUT;
  }
  /// Tests all requests in turn until all are done; false if one fails or the time is up.
  bool finish_all(std::vector<void*> requests) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!requests.empty() && std::chrono::steady_clock::now() < end) {
      std::vector<void*> open;
      for (void* const request : requests) {
        int32_t done = 0;
        if (ops().test(request, &done, nullptr) != TUTTI_OK) return false;
        if (done == 0) open.push_back(request);
      }
      requests = std::move(open);
    }
    return requests.empty();
  }

 private:
  void connect() {
    void *connecting = nullptr, *accepting = nullptr;
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while ((sender_ == nullptr || receiver_ == nullptr) && std::chrono::steady_clock::now() < end) {
      if (sender_ == nullptr) {
        const int32_t code = ops().connect(from_.context(), 0, &to_.handle(), &connecting, &sender_);
        require(code == TUTTI_OK || code == TUTTI_AGAIN, plugin::take_failure_text());
      }
      if (receiver_ == nullptr) {
        const int32_t code = ops().accept(to_.listener(), &accepting, &receiver_);
        require(code == TUTTI_OK || code == TUTTI_AGAIN, plugin::take_failure_text());
      }
    }
    require(sender_ != nullptr && receiver_ != nullptr, "no connection in time");
  }

  IbNetwork from_;
  IbNetwork to_;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
};

inline std::vector<uint8_t> random_bytes(size_t size) {
  static std::mt19937_64 random(std::random_device{}());
  std::vector<uint8_t> data(size);
  for (size_t place = 0; place < size; place += sizeof(uint64_t)) {  // one number for eight bytes: emulation is slow
    const uint64_t number = random();
    std::memcpy(data.data() + place, &number, std::min(sizeof number, size - place));
  }
  return data;
}

}  // namespace tutti::test
