// SPDX-License-Identifier: Apache-2.0
// Both ends of the network ucx in one process, for its tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/config.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"

namespace tutti::test_ucx {

using Clock = std::chrono::steady_clock;
using Settings = std::vector<std::pair<std::string, std::string>>;
using Bytes = std::vector<uint8_t>;

inline constexpr std::chrono::seconds kLimit{20};

inline Bytes random_bytes(size_t size) {
  static std::mt19937_64 random(std::random_device{}());
  Bytes data(size);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  return data;
}

/// Calls `step` until it returns true; false when the time is up.
template <class Step>
bool until(Step&& step) {
  for (const auto end = Clock::now() + kLimit; Clock::now() < end;) {
    if (step()) return true;
  }
  return false;
}

/// One rank's end: an open plugin with a context and a listener.
class Side {
 public:
  explicit Side(Settings settings) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings = std::move(settings);
    options.settings.emplace_back("settings.net.ucx.interface", "lo");
    auto config = test::required(config::Config::load(options));
    const auto image = test::required(
        plugin::Image::load(plugin::Kind::kNetwork, "ucx", TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-ucx.so"));
    plugin_ = test::required(plugin::Plugin::open(image, config));
    int32_t code = ops().create(plugin_->self(), 1, &context_);
    if (code == TUTTI_OK) code = ops().listen(context_, 0, &handle_, &listener_);
    if (code == TUTTI_OK) return;
    const std::string text = plugin::take_failure_text();
    if (context_ != nullptr) ops().destroy(context_);
    test::require(false, text);
  }
  ~Side() {
    for (void* connection : connections_) ops().close_connection(connection);
    ops().close_listener(listener_);
    ops().destroy(context_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const tutti_network_ops& ops() const { return *plugin_->ops<tutti_network_ops>(); }
  void* context() const { return context_; }
  const tutti_net_handle& handle() const { return handle_; }

  int32_t connect(const tutti_net_handle& to, void** state, void** connection) {
    return kept(ops().connect(context_, 0, &to, state, connection), connection);
  }
  int32_t accept(void** connection) {
    void* state = nullptr;
    return kept(ops().accept(listener_, &state, connection), connection);
  }
  void close(void* connection) {
    ops().close_connection(connection);
    std::erase(connections_, connection);
  }

 private:
  int32_t kept(int32_t code, void* const* connection) {
    if (code == TUTTI_OK) connections_.push_back(*connection);
    return code;
  }
  std::shared_ptr<plugin::Plugin> plugin_;
  void* context_ = nullptr;
  void* listener_ = nullptr;
  tutti_net_handle handle_{};
  std::vector<void*> connections_;
};

/// Sender and receiver with one connection between them.
struct Pair {
  explicit Pair(const Settings& settings = {{"settings.net.ucx.transports", "[tcp]"}})
      : from(std::make_unique<Side>(settings)), to(std::make_unique<Side>(settings)) {
    std::tie(sender, receiver) = connect();
  }
  std::pair<void*, void*> connect() const {
    void *state = nullptr, *out = nullptr, *in = nullptr;
    const bool made = until([&] {
      const int32_t connected = out == nullptr ? from->connect(to->handle(), &state, &out) : TUTTI_OK;
      const int32_t accepted = in == nullptr ? to->accept(&in) : TUTTI_OK;
      test::require(connected == TUTTI_OK || connected == TUTTI_AGAIN, plugin::take_failure_text());
      test::require(accepted == TUTTI_OK || accepted == TUTTI_AGAIN, plugin::take_failure_text());
      return out != nullptr && in != nullptr;
    });
    test::require(made, "the connection does not stand in time");
    return {out, in};
  }
  void* send(const Bytes& data, uint32_t tag = 0) const { return send(sender, data, tag); }
  void* recv(Bytes& data, uint32_t tag = 0) const { return recv(receiver, data, tag); }
  void* send(void* connection, const Bytes& data, uint32_t tag) const {
    void* request = nullptr;
    EXPECT_EQ(from->ops().send(connection, data.data(), data.size(), tag, nullptr, &request), TUTTI_OK);
    return request;
  }
  void* recv(void* connection, Bytes& data, uint32_t tag) const {
    void* address = data.data();
    const uint64_t bytes = data.size();
    void *none = nullptr, *request = nullptr;
    EXPECT_EQ(to->ops().recv(connection, 1, &address, &bytes, &tag, &none, &request), TUTTI_OK);
    return request;
  }
  int32_t test(void* request, bool& done, uint64_t* bytes = nullptr) const {
    int32_t is_done = 0;
    const int32_t code = from->ops().test(request, &is_done, bytes);
    done = is_done != 0;
    return code;
  }
  /// Pushes on all requests until done; false when the time is up or one fails.
  bool finish(std::vector<void*> requests) const {
    bool failed = false;
    const bool all = until([&] {
      std::erase_if(requests, [&](void* request) {
        bool done = false;
        failed = failed || test(request, done) != TUTTI_OK;
        return done;
      });
      return failed || requests.empty();
    });
    return all && !failed;
  }
  /// The code with which the request fails, TUTTI_OK if it completes or the time is up.
  int32_t failure(void* request) const {
    int32_t code = TUTTI_OK;
    bool done = false;
    until([&] {
      progress();
      return (code = test(request, done)) != TUTTI_OK || done;
    });
    return code;
  }
  /// Progresses both sides: UCX needs both for a long message.
  void progress() const {
    for (Side* const side : {from.get(), to.get()}) {
      void* none = nullptr;
      test::require(side->accept(&none) == TUTTI_AGAIN, "a connection from nowhere");
    }
  }

  std::unique_ptr<Side> from;
  std::unique_ptr<Side> to;
  void* sender = nullptr;
  void* receiver = nullptr;
};

}  // namespace tutti::test_ucx
