// SPDX-License-Identifier: Apache-2.0
// Several NCCL plugins in one process, each behind a network "nccl" of its own, through the table that the host calls.
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/config.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"

namespace tutti {
namespace {

constexpr std::chrono::seconds kLimit{30};

/// An open network, with connections from its device 0 to its device 1. A thread per connection may carry and close.
class Loop {
 public:
  explicit Loop(const std::string& mock, size_t connections = 1) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings.emplace_back("settings.net.nccl.file",
                                  TUTTI_BINARY_DIR "/tests/nccl_net/libnccl-net-" + mock + ".so");
    auto config = test::required(config::Config::load(options));
    const auto image = test::required(
        plugin::Image::load(plugin::Kind::kNetwork, "nccl", TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-nccl.so"));
    plugin_ = test::required(plugin::Plugin::open(image, config));
    expect_ok(ops().create(plugin_->self(), 7, &context_));
    expect_ok(ops().listen(context_, 1, &handle_, &listener_));
    for (size_t i = 0; i < connections; ++i) links_.push_back(connect());
  }
  ~Loop() {
    for (size_t i = 0; i < links_.size(); ++i) close(i);
    ops().close_listener(listener_);
    ops().destroy(context_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::string device_name() const {
    tutti_net_properties properties{};
    properties.struct_size = sizeof properties;
    expect_ok(ops().properties(context_, 0, &properties));
    return {properties.name.data, properties.name.size};
  }

  /// Posts 64 messages, more than the plugin takes, and completes them. The received text of all.
  std::string carry(const std::string& text, size_t connection = 0) {
    constexpr size_t kCount = 64;
    const auto [sender, receiver] = links_.at(connection);
    std::string out(text.size() * kCount, '?');
    std::string in;
    for (size_t i = 0; i < kCount; ++i) in += text;
    void *out_region = nullptr, *in_region = nullptr;
    expect_ok(ops().register_memory(sender, in.data(), in.size(), TUTTI_MEMORY_HOST, &in_region));
    expect_ok(ops().register_memory(receiver, out.data(), out.size(), TUTTI_MEMORY_HOST, &out_region));
    std::vector<void*> requests;
    for (size_t i = 0; i < kCount; ++i) {
      const uint64_t bytes = text.size();
      const uint32_t tag = 3;
      void *send = nullptr, *receive = nullptr, *to = out.data() + i * bytes;
      expect_ok(ops().send(sender, in.data() + i * bytes, bytes, tag, in_region, &send));
      expect_ok(ops().recv(receiver, 1, &to, &bytes, &tag, &out_region, &receive));
      requests.insert(requests.begin(), {receive, send});  // the newest is tested first
    }
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!requests.empty() && std::chrono::steady_clock::now() < end) {
      std::erase_if(requests, [&](void* request) {
        int32_t done = 0;
        expect_ok(ops().test(request, &done, nullptr));
        return done != 0;
      });
    }
    EXPECT_TRUE(requests.empty());
    expect_ok(ops().deregister_memory(sender, in_region));
    expect_ok(ops().deregister_memory(receiver, out_region));
    return out == in ? text : out;
  }
  void close(size_t connection) {
    const auto [sender, receiver] = std::exchange(links_.at(connection), {});
    if (sender == nullptr) return;
    ops().close_connection(sender);
    ops().close_connection(receiver);
  }

 private:
  static void expect_ok(int32_t code) {
    test::require(code == TUTTI_OK || code == TUTTI_AGAIN, plugin::take_failure_text());
  }
  std::pair<void*, void*> connect() {
    void *connecting = nullptr, *accepting = nullptr, *sender = nullptr, *receiver = nullptr;
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while ((sender == nullptr || receiver == nullptr) && std::chrono::steady_clock::now() < end) {
      if (sender == nullptr) expect_ok(ops().connect(context_, 0, &handle_, &connecting, &sender));
      if (receiver == nullptr) expect_ok(ops().accept(listener_, &accepting, &receiver));
    }
    test::require(sender != nullptr && receiver != nullptr, "the connection does not stand in time");
    return {sender, receiver};
  }
  const tutti_network_ops& ops() const { return *plugin_->ops<tutti_network_ops>(); }

  std::shared_ptr<plugin::Plugin> plugin_;
  void* context_ = nullptr;
  tutti_net_handle handle_{};
  void* listener_ = nullptr;
  std::vector<std::pair<void*, void*>> links_;  // sender and receiver; null: closed
};

TEST(NetNccl, PluginsOfAllVersionsLiveSideBySide) {
  std::vector<std::unique_ptr<Loop>> loops;
  for (int version = 6; version <= 12; ++version) {
    loops.push_back(std::make_unique<Loop>("mock" + std::to_string(version)));
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < loops.size(); ++i) {
      EXPECT_EQ(loops[i]->device_name(), "mock" + std::to_string(i + 6) + "_0");
      const std::string text = "round " + std::to_string(round) + " of version " + std::to_string(i + 6);
      EXPECT_EQ(loops[i]->carry(text), text);
    }
  }
}

TEST(NetNccl, TwoPluginsOfOneVersionLiveSideBySide) {
  Loop first("mock9"), second("single");
  EXPECT_EQ(first.device_name(), "mock9_0");
  EXPECT_EQ(second.device_name(), "single_0");
  EXPECT_EQ(first.carry("first"), "first");
  EXPECT_EQ(second.carry("second"), "second");
}

// The mock fails if init of version 6 runs twice in a process.
TEST(NetNccl, OneFileServesSeveralNetworksOneAfterTheOtherAndAtOnce) {
  for (const char* const mock : {"mock6", "mock10", "mock12"}) {
    Loop first(mock);
    Loop second(mock);
    EXPECT_EQ(first.carry("a"), "a");
    EXPECT_EQ(second.carry("b"), "b");
  }
  Loop again("mock6");
  EXPECT_EQ(again.carry("c"), "c");
}

/// Each test of a request also offers the waiting messages of the other connections. The threads end one after the
/// other, so connections close while others carry.
TEST(NetNccl, ThreadsShareAContext) {
  constexpr size_t kThreads = 4;
  for (const char* const mock : {"mock12", "single"}) {
    Loop loop(mock, kThreads);
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&loop, i] {
        try {
          const std::string text = "thread " + std::to_string(i);
          for (size_t round = 0; round < 10 * (i + 1); ++round) EXPECT_EQ(loop.carry(text, i), text);
          loop.close(i);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
  }
}

}  // namespace
}  // namespace tutti
