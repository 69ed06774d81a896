// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/side.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/descriptors.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatience = 5;  // seconds of a wait
constexpr int kSpins = 200;      // rounds without movement before a wait polls more rarely
constexpr timespec kInterval{0, 50'000};
constexpr std::chrono::microseconds kMovement{10};  // a step that takes longer has moved data
constexpr uint64_t kHello = 0x5475747469204b69;

}  // namespace

Side::Side(Options options) : options_(std::move(options)), calls_(*options_.watched), random_(options_.seed) {
  ops_ = options_.plugin->ops<tutti_network_ops>();
  base::widen_descriptor_table();  // as a communicator does
  call(Entry::kCreate, [&] { return ops_->create(options_.plugin->self(), options_.seed, &context_); });
  properties_.struct_size = sizeof properties_;
  call(Entry::kProperties, [&] { return ops_->properties(context_, options_.device, &properties_); });
  tutti_net_handle handle{};
  call(Entry::kListen, [&] { return ops_->listen(context_, options_.device, &handle, &listener_); });
  options_.watched->is_set_up = true;
  tell(handle);
  peer_handle_ = hear_as<tutti_net_handle>();
}

Side::~Side() {
  while (!links_.empty()) close(links_.back());
  for (const Guest& guest : guests_) {
    if (guest.registration != nullptr) deregister_memory(guest.connection, guest.registration);
    call_void(Entry::kCloseConnection, [&] { ops_->close_connection(guest.connection); });
  }
  if (accept_state_ != nullptr) call_void(Entry::kCancel, [&] { ops_->cancel(accept_state_); });
  call_void(Entry::kCloseListener, [&] { ops_->close_listener(listener_); });
  call_void(Entry::kDestroy, [&] { ops_->destroy(context_); });
  report("passed", options_.rule->number, "");
}

void Side::report(std::string_view result, std::string_view rule, const std::string& text) {
  const nlohmann::json line = {
      {"role", options_.role}, {"result", result}, {"rule", rule}, {"text", text.substr(0, 1500)}};
  const std::string out = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t written = write(options_.results, out.data(), out.size());  // one piece: < PIPE_BUF
}

void Side::violate(std::string_view rule, const std::string& text) {
  static std::mutex once;  // never unlocked: the process ends
  once.lock();
  report("failed", rule, fmt::format("{} side: {}", is_first() ? "first" : "second", text));
  _exit(0);
}

void Side::skip(const std::string& reason) {
  report("skipped", options_.rule->number, reason);
  _exit(0);
}

/// The other side has reported why it ended.
void Side::end_quietly() {
  report("abandoned", options_.rule->number, "");
  if (options_.where == Where::kOneProcess) pause();  // the other side's thread ends the process
  _exit(0);
}

void Side::note(const std::string& what) {
  auto& text = options_.watched->waits_for;
  const size_t size = std::min(what.size(), text.size() - 1);
  std::copy_n(what.data(), size, text.data());
  text[size] = 0;
}

void Side::tell(std::span<const std::byte> message) {
  if (::send(options_.line, message.data(), message.size(), MSG_NOSIGNAL) < 0) end_quietly();
}

std::vector<std::byte> Side::hear() {
  note("the other side of the rule");
  std::vector<std::byte> message(4096);
  for (int round = 0;; ++round) {
    const ssize_t size = ::recv(options_.line, message.data(), message.size(), MSG_DONTWAIT);
    if (size > 0) {
      message.resize(static_cast<size_t>(size));
      return message;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) end_quietly();
    if (listener_ != nullptr && round % 8 == 0) accept_guests();  // the host's progress goes on, too
    pollfd ready{options_.line, POLLIN, 0};
    poll(&ready, 1, round < kSpins ? 0 : 1);
  }
}

void Side::meet() {
  tell(uint32_t{options_.role});
  hear_as<uint32_t>();
}

Outcome Side::attempt(Entry entry, const std::function<int32_t()>& body) {
  plugin::take_failure_text();
  Outcome outcome;
  outcome.code = calls_.call(entry, body, [&](const std::string& what) {
    violate(kThrows, fmt::format("entry '{}' lets an exception out: {}", to_string(entry), what));
  });
  if (outcome.code == TUTTI_OK || outcome.code == TUTTI_AGAIN) return outcome;
  outcome.text = plugin::take_failure_text();
  if (outcome.text.empty()) {
    violate(kReasons, fmt::format("entry '{}' fails with code {} and gives no reason", to_string(entry), outcome.code));
  }
  return outcome;
}

int32_t Side::call(Entry entry, const std::function<int32_t()>& body) {
  const Outcome outcome = attempt(entry, body);
  if (outcome.code == TUTTI_OK || outcome.code == TUTTI_AGAIN) return outcome.code;
  violate(fmt::format("entry '{}' fails with code {}: {}", to_string(entry), outcome.code, outcome.text));
}

void Side::call_void(Entry entry, const std::function<void()>& body) {
  attempt(entry, [&] { return body(), TUTTI_OK; });
}

bool Side::wait_for(const std::string& what, double seconds, const std::function<bool()>& step) {
  note(what);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int round = 0;; ++round) {
    const auto before = Clock::now();
    if (step()) return true;
    const auto after = Clock::now();
    if (after > end) return false;
    if (after - before > kMovement) round = 0;
    if (round % 16 == 0) accept_guests();
    if (round < kSpins) {
      sched_yield();
    } else {
      nanosleep(&kInterval, nullptr);
    }
  }
}

void Side::wait(const std::string& what, const std::function<bool()>& step) {
  if (!wait_for(what, kPatience, step)) violate(fmt::format("no {} within {} s", what, kPatience));
}

void Side::accept_guests() {
  void* connection = nullptr;
  const int32_t code = call(Entry::kAccept, [&] { return ops_->accept(listener_, &accept_state_, &connection); });
  if (code == TUTTI_OK) accept_state_ = nullptr;
  if (connection != nullptr) {
    guests_.push_back({connection, nullptr, nullptr, std::make_unique<std::array<uint64_t, 2>>()});
  }
}

void* Side::link(uint32_t sender) {
  const uint64_t serial = ++serial_;
  void* const connection = options_.role == sender ? connect_link(serial) : accept_link(serial);
  links_.push_back(connection);
  meet();
  return connection;
}

void* Side::connect_link(uint64_t serial) {
  void *state = nullptr, *connection = nullptr;
  wait("connection to the other side", [&] {
    const int32_t code = call(
        Entry::kConnect, [&] { return ops_->connect(context_, options_.device, &peer_handle_, &state, &connection); });
    return code == TUTTI_OK && connection != nullptr;
  });
  std::array<uint64_t, 2> hello{kHello, serial};
  void* const registration = register_memory(connection, hello.data(), sizeof hello);
  finish(send(connection, hello.data(), sizeof hello, registration), "end of the first send of a connection");
  deregister_memory(connection, registration);
  return connection;
}

bool Side::read_hello(Guest& guest, uint64_t serial) {
  auto& hello = *guest.hello;
  if (guest.has_failed) return false;
  if (guest.request == nullptr) {
    guest.registration = register_memory(guest.connection, hello.data(), sizeof hello);
    const uint32_t tag = 0;
    const uint64_t room = sizeof hello;
    void* address = hello.data();
    const Outcome posted = attempt(Entry::kRecv, [&] {
      return ops_->recv(guest.connection, 1, &address, &room, &tag, &guest.registration, &guest.request);
    });
    if (posted.code != TUTTI_OK && posted.code != TUTTI_AGAIN && !tolerates_guests_) violate("recv: " + posted.text);
    if (guest.request == nullptr) return false;
  }
  uint64_t bytes = 0;
  const Outcome outcome = attempt_test(guest.request, &bytes);
  const bool failed = outcome.code != TUTTI_OK && outcome.code != TUTTI_AGAIN;
  if (failed && !tolerates_guests_) violate("the first message of a connection: " + outcome.text);
  if (failed) guest.has_failed = true;  // its request is gone
  if (failed || !outcome.done) return false;
  if (bytes == sizeof hello && hello[0] == kHello && hello[1] == serial) return true;
  if (tolerates_guests_) return false;
  violate(fmt::format("the first message of a connection has {} bytes, {:x} {:x}; sent were {} bytes, {:x} {:x}", bytes,
                      hello[0], hello[1], sizeof hello, kHello, serial));
}

void* Side::accept_link(uint64_t serial) {
  void* connection = nullptr;
  wait("connection from the other side", [&] {
    accept_guests();
    for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
      if (!read_hello(*guest, serial)) continue;
      connection = guest->connection;
      deregister_memory(connection, guest->registration);
      guests_.erase(guest);
      return true;
    }
    return false;
  });
  return connection;
}

void Side::close(void* connection) {
  std::erase(links_, connection);
  call_void(Entry::kCloseConnection, [&] { ops_->close_connection(connection); });
}

void* Side::register_memory(void* connection, void* address, uint64_t bytes, uint32_t memory) {
  void* registration = nullptr;
  call(Entry::kRegister, [&] { return ops_->register_memory(connection, address, bytes, memory, &registration); });
  return registration;
}

void Side::deregister_memory(void* connection, void* registration) {
  if (registration == nullptr) return;
  call(Entry::kDeregister, [&] { return ops_->deregister_memory(connection, registration); });
}

void* Side::send(void* connection, const void* address, uint64_t bytes, void* registration, uint32_t tag) {
  void* request = nullptr;
  wait(fmt::format("place for a send of {} bytes", bytes), [&] {
    call(Entry::kSend, [&] { return ops_->send(connection, address, bytes, tag, registration, &request); });
    return request != nullptr;
  });
  return request;
}

void* Side::recv(void* connection, void* address, uint64_t bytes, void* registration, uint32_t tag) {
  void* request = nullptr;
  wait(fmt::format("place for a receive of {} bytes", bytes), [&] {
    call(Entry::kRecv, [&] { return ops_->recv(connection, 1, &address, &bytes, &tag, &registration, &request); });
    return request != nullptr;
  });
  return request;
}

Outcome Side::attempt_test(void* request, uint64_t* bytes) {
  int32_t done = 0;
  Outcome outcome = attempt(Entry::kTest, [&] { return ops_->test(request, &done, bytes); });
  outcome.done = done != 0;
  return outcome;
}

bool Side::test(void* request, uint64_t* bytes) {
  int32_t done = 0;
  call(Entry::kTest, [&] { return ops_->test(request, &done, bytes); });
  return done != 0;
}

uint64_t Side::finish(void* request, const std::string& what) {
  uint64_t bytes = 0;
  wait(what, [&] { return test(request, &bytes); });
  return bytes;
}

void fill(std::span<uint8_t> bytes, uint64_t seed) {
  uint64_t word = seed * 0x9E3779B97F4A7C15 + 1;
  for (size_t i = 0; i < bytes.size(); i += sizeof word) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, bytes.size() - i));
  }
}

std::string difference(std::span<const uint8_t> bytes, uint64_t seed) {
  std::vector<uint8_t> expected(bytes.size());
  fill(expected, seed);
  const auto [got, wanted] = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
  if (got == bytes.end()) return {};
  return fmt::format("byte {} of {} is {}, but {} was sent", got - bytes.begin(), bytes.size(), *got, *wanted);
}

Buffer::Buffer(Side& side, void* connection, uint64_t bytes)
    : side_(side), connection_(connection), memory_(bytes + 2 * kMargin, kPoison) {
  registration_ = side.register_memory(connection, at(0), std::max<uint64_t>(bytes, 1));
}

Buffer::~Buffer() {
  side_.deregister_memory(connection_, registration_);
}

void* Buffer::send(uint64_t offset, uint64_t bytes, uint32_t tag) {
  return side_.send(connection_, at(offset), bytes, registration_, tag);
}

void* Buffer::recv(uint64_t offset, uint64_t bytes, uint32_t tag) {
  return side_.recv(connection_, at(offset), bytes, registration_, tag);
}

void Buffer::poison() {
  std::fill(memory_.begin(), memory_.end(), kPoison);
}

std::string Buffer::touched(int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) {
    const uint8_t byte = memory_[static_cast<size_t>(i + kMargin)];
    if (byte != kPoison) return fmt::format("byte {} of the buffer was overwritten with {}", i, byte);
  }
  return {};
}

}  // namespace tutti::tools::plugin_test
