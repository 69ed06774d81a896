// SPDX-License-Identifier: Apache-2.0
// The C++ face of network plugins, driven through the C table as the host drives it.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/sdk/network.h"

namespace {

using namespace tutti;

/// Messages between the two ends of the only connection.
struct Wire {
  std::deque<std::vector<char>> messages;
  bool asked = false;
};

class PipeEnd : public sdk::Connection {
 public:
  explicit PipeEnd(Wire& wire) : wire_(wire) { slot_.connection = this; }
  Status send(const void* address, uint64_t bytes, uint32_t tag, void*, sdk::Request*& request) override {
    if (tag == 666) throw std::runtime_error("an unlucky tag");
    const char* data = static_cast<const char*>(address);
    wire_.messages.emplace_back(data, data + bytes);
    slot_.into = nullptr;
    request = &slot_;
    return {};
  }
  Status recv(uint32_t, void* const* addresses, const uint64_t* bytes, const uint32_t*, void* const*,
              sdk::Request*& request) override {
    if (bytes[0] == 0) return {};  // "not now"
    slot_.into = static_cast<char*>(addresses[0]);
    slot_.room = bytes[0];
    request = &slot_;
    return {};
  }
  Status test(sdk::Request& raw, bool& done, uint64_t* bytes) override {
    auto& request = static_cast<Slot&>(raw);
    done = request.into == nullptr || !wire_.messages.empty();
    if (!done || request.into == nullptr) return {};
    const std::vector<char> message = wire_.messages.front();
    wire_.messages.pop_front();
    if (message.size() > request.room) return {Code::kMismatch, "a message is longer than its buffer"};
    std::memcpy(request.into, message.data(), message.size());
    *bytes = message.size();
    return {};
  }

 private:
  struct Slot : sdk::Request {
    char* into = nullptr;
    uint64_t room = 0;
  };
  Wire& wire_;
  Slot slot_;
};

class Dial : public sdk::Connecting {
 public:
  Dial(Wire& wire, int& alive) : wire_(wire), alive_(++alive) {}
  ~Dial() override { --alive_; }
  Result<std::unique_ptr<sdk::Connection>> advance() override {
    if (!std::exchange(wire_.asked, true)) return std::unique_ptr<sdk::Connection>();
    return std::unique_ptr<sdk::Connection>(std::make_unique<PipeEnd>(wire_));
  }

 private:
  Wire& wire_;
  int& alive_;
};

class WireListener : public sdk::Listener {
 public:
  explicit WireListener(Wire& wire) : wire_(wire) {}
  Result<std::unique_ptr<sdk::Connection>> accept() override {
    if (!wire_.asked) return std::unique_ptr<sdk::Connection>();
    return std::unique_ptr<sdk::Connection>(std::make_unique<PipeEnd>(wire_));
  }

 private:
  Wire& wire_;
};

int dialing = 0;

class PipeContext : public sdk::NetworkContext {
 public:
  uint32_t device_count() const override { return 1; }
  Result<tutti_net_properties> properties(uint32_t device) const override {
    if (device != 0) return Status(Code::kInvalidArgument, "there is one device");
    tutti_net_properties out{};
    out.name = sdk::borrow("pipe");
    return out;
  }
  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t, tutti_net_handle& handle) override {
    handle.bytes[0] = 7;
    return std::unique_ptr<sdk::Listener>(std::make_unique<WireListener>(wire_));
  }
  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t, const tutti_net_handle& handle) override {
    if (handle.bytes[0] != 7) return Status(Code::kRemote, "nobody listens there");
    return std::unique_ptr<sdk::Connecting>(std::make_unique<Dial>(wire_, dialing));
  }
  Result<bool> arm() override { return !wire_.messages.empty(); }

 private:
  Wire wire_;
};

class Pipe : public sdk::Network {
 public:
  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t) override {
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<PipeContext>());
  }
};

class SdkNetwork : public testing::Test {
 protected:
  void SetUp() override {
    host_.struct_size = sizeof host_;
    host_.context = &why_;
    host_.fail = [](void* context, tutti_str text) { static_cast<std::string*>(context)->assign(sdk::view(text)); };
    plugin_.struct_size = sizeof plugin_;
    ASSERT_EQ(sdk::describe<Pipe>(&plugin_, "pipe", "1.0", "a pipe"), TUTTI_OK);
    ops_ = static_cast<const tutti_network_ops*>(plugin_.ops);
    ASSERT_EQ(plugin_.open(&host_, &self_), TUTTI_OK);
    ASSERT_EQ(ops_->create(self_, 1, &context_), TUTTI_OK);
    ASSERT_EQ(ops_->listen(context_, 0, &handle_, &listener_), TUTTI_OK);
  }
  void TearDown() override {
    ops_->close_listener(listener_);
    ops_->destroy(context_);
    plugin_.close(self_);
    EXPECT_EQ(dialing, 0);
  }

  std::string why_;
  tutti_host host_{};
  tutti_plugin plugin_{};
  const tutti_network_ops* ops_ = nullptr;
  void* self_ = nullptr;
  void* context_ = nullptr;
  void* listener_ = nullptr;
  tutti_net_handle handle_{};
};

/// A host of an earlier version knows fewer fields. The SDK writes none of the fields behind.
TEST_F(SdkNetwork, WritesOnlyTheFieldsThatTheHostKnows) {
  tutti_plugin plugin{};
  plugin.struct_size = offsetof(tutti_plugin, close);
  ASSERT_EQ(sdk::describe<Pipe>(&plugin, "pipe", "1.0", "a pipe"), TUTTI_OK);
  EXPECT_EQ(plugin.struct_size, offsetof(tutti_plugin, close));
  EXPECT_NE(plugin.open, nullptr);
  EXPECT_EQ(plugin.close, nullptr);
  EXPECT_EQ(plugin.ops, nullptr);
  plugin.struct_size = 3;
  EXPECT_EQ(sdk::describe<Pipe>(&plugin, "pipe", "1.0", "a pipe"), TUTTI_VERSION_MISMATCH);

  tutti_net_properties properties{};
  properties.struct_size = offsetof(tutti_net_properties, rail);
  properties.rail = 77;
  ASSERT_EQ(ops_->properties(context_, 0, &properties), TUTTI_OK);
  EXPECT_EQ(properties.struct_size, offsetof(tutti_net_properties, rail));
  EXPECT_EQ(sdk::view(properties.name), "pipe");
  EXPECT_EQ(properties.rail, 77);
}

TEST_F(SdkNetwork, ConnectsAndMovesAMessage) {
  void* state = nullptr;
  void* accept_state = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
  EXPECT_EQ(ops_->accept(listener_, &accept_state, &receiver), TUTTI_AGAIN);
  EXPECT_EQ(ops_->connect(context_, 0, &handle_, &state, &sender), TUTTI_AGAIN);
  EXPECT_NE(state, nullptr);
  EXPECT_EQ(ops_->connect(context_, 0, &handle_, &state, &sender), TUTTI_OK);
  EXPECT_EQ(state, nullptr);
  ASSERT_EQ(ops_->accept(listener_, &accept_state, &receiver), TUTTI_OK);

  std::array<char, 8> buffer{};
  void* address = buffer.data();
  const uint32_t tag = 5;
  void* registration = nullptr;
  ASSERT_EQ(ops_->register_memory(receiver, address, 8, TUTTI_MEMORY_HOST, &registration), TUTTI_OK);
  EXPECT_EQ(ops_->register_memory(receiver, address, 8, TUTTI_MEMORY_CUDA, &registration), TUTTI_UNSUPPORTED);
  EXPECT_EQ(why_, "only host memory can be registered");
  int32_t done = -1;
  uint64_t bytes = 0;
  uint64_t room = 0;
  void* request = this;
  EXPECT_EQ(ops_->recv(receiver, 1, &address, &room, &tag, &registration, &request), TUTTI_OK);
  EXPECT_EQ(request, nullptr) << "nothing was posted";
  room = buffer.size();
  ASSERT_EQ(ops_->recv(receiver, 1, &address, &room, &tag, &registration, &request), TUTTI_OK);
  EXPECT_EQ(ops_->test(request, &done, &bytes), TUTTI_OK);
  EXPECT_EQ(done, 0);
  void* sent = nullptr;
  EXPECT_EQ(ops_->arm(context_), TUTTI_OK) << "nothing is there: the host may sleep";
  ASSERT_EQ(ops_->send(sender, "tutti", 5, tag, nullptr, &sent), TUTTI_OK);
  EXPECT_EQ(ops_->arm(context_), TUTTI_AGAIN) << "a message is there";
  EXPECT_EQ(ops_->test(sent, &done, nullptr), TUTTI_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(ops_->test(request, &done, &bytes), TUTTI_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(std::string(buffer.data(), bytes), "tutti");

  room = 2;
  ASSERT_EQ(ops_->recv(receiver, 1, &address, &room, &tag, &registration, &request), TUTTI_OK);
  ASSERT_EQ(ops_->send(sender, "tutti", 5, tag, nullptr, &sent), TUTTI_OK);
  EXPECT_EQ(ops_->test(request, &done, &bytes), TUTTI_MISMATCH);
  EXPECT_EQ(why_, "a message is longer than its buffer");
  EXPECT_EQ(ops_->send(sender, "x", 1, 666, nullptr, &sent), TUTTI_INTERNAL);
  EXPECT_EQ(why_, "unexpected exception: an unlucky tag");
  ops_->close_connection(sender);
  ops_->close_connection(receiver);
}

TEST_F(SdkNetwork, FailuresSayWhyAndGivenUpConnectsAreGone) {
  tutti_net_properties properties{};
  properties.struct_size = sizeof properties;
  EXPECT_EQ(ops_->properties(context_, 0, &properties), TUTTI_OK);
  EXPECT_EQ(properties.struct_size, sizeof properties);
  EXPECT_EQ(sdk::view(properties.name), "pipe");
  EXPECT_EQ(ops_->properties(context_, 3, &properties), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(why_, "there is one device");
  int32_t fd = -1;
  EXPECT_EQ(ops_->event_fd(context_, &fd), TUTTI_UNSUPPORTED);

  void* state = nullptr;
  void* connection = nullptr;
  const tutti_net_handle stranger{};
  EXPECT_EQ(ops_->connect(context_, 0, &stranger, &state, &connection), TUTTI_REMOTE);
  EXPECT_EQ(why_, "nobody listens there");
  EXPECT_EQ(state, nullptr);
  EXPECT_EQ(ops_->connect(context_, 0, &handle_, &state, &connection), TUTTI_AGAIN);
  EXPECT_EQ(dialing, 1);
  ops_->cancel(state);
}

}  // namespace
