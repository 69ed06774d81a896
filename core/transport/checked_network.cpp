// SPDX-License-Identifier: Apache-2.0
#include "transport/checked_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "log/log.h"
#include "transport/checked_objects.h"

namespace tutti::transport {
namespace {

using checked::Clock;
using checked::Connection;
using checked::Context;
using checked::Listener;
using checked::Part;
using checked::Pending;
using checked::Poison;
using checked::Request;

constexpr std::chrono::milliseconds kConnectSleep{50};
// On a loaded machine, a thread sleeps while the owner of a lock that it needs has no processor. An example is the
// kernel's lock of the memory map. Sleeps of 216 ms were seen. A plugin that blocks does so for longer, or repeatedly.
constexpr std::chrono::milliseconds kCertainSleep{500};
constexpr uint32_t kMostConnectSleeps = 3;        // of a context
constexpr uint64_t kUnset = UINT64_MAX - 0x5a5a;  // a length that no plugin reports
constexpr int32_t kUndecided = -0x5a5a;
constexpr uint64_t kBehind = 256;  // bytes behind a message that are looked at
constexpr size_t kMostClosed = 64;
constexpr uint64_t kFewest = 8, kMost = 16;  // bytes that tell whether they were written

thread_local std::optional<Violation> violation;
thread_local std::string failure_text;

int32_t violate(uint32_t rule, const char* entry, std::string what) {
  if (!violation) violation = Violation{&plugin::network_rule(rule), entry, std::move(what)};
  return TUTTI_INTERNAL;
}

/// The core breaks the contract, not the plugin.
int32_t fault_of_core(const char* entry, const char* what) {
  failure_text = fmt::format("a bug of Tutti's core: it calls '{}' {}", entry, what);
  log::error("{}", failure_text);
  return TUTTI_INTERNAL;
}

Context& context_of(void* raw) {
  return *static_cast<Context*>(raw);
}

bool is_same(const tutti_net_properties& a, const tutti_net_properties& b) {
  const auto text = [](tutti_str s) { return std::string_view(s.data, s.size); };
  return text(a.name) == text(b.name) && a.port == b.port && a.guid == b.guid && a.memory == b.memory &&
         a.max_grouped_recvs == b.max_grouped_recvs && a.max_message_bytes == b.max_message_bytes &&
         a.max_connections == b.max_connections && a.rail == b.rail;
}

/// Why the properties break NET-6; empty: they do not.
std::string out_of_range(const tutti_net_properties& p) {
  if (const std::string why = plugin::wrong_size_of_properties(p); !why.empty()) return why;
  if (p.name.data == nullptr || p.name.size == 0 || p.name.size >= 64) return "its name is empty or too long";
  if ((p.memory & TUTTI_MEMORY_HOST) == 0) return fmt::format("memory is {:#x}, without TUTTI_MEMORY_HOST", p.memory);
  if (p.max_grouped_recvs < 1) return "max_grouped_recvs is 0";
  if (p.max_message_bytes < 65536) return fmt::format("max_message_bytes is {}, below 64 KiB", p.max_message_bytes);
  if (!std::isfinite(p.speed_gbs) || p.speed_gbs < 0) return fmt::format("speed_gbs is {}", p.speed_gbs);
  if (!std::isfinite(p.latency_us) || p.latency_us < 0) return fmt::format("latency_us is {}", p.latency_us);
  return p.rail >= -1 ? std::string() : fmt::format("rail is {}", p.rail);
}

/// Why the device breaks NET-7; empty: it does not.
std::string contradiction(const tutti_net_properties& p, uint64_t capabilities) {
  if ((capabilities & TUTTI_NET_CAP_GROUPED_RECV) != 0 && p.max_grouped_recvs < 2) {
    return fmt::format("the plugin claims grouped receives, but max_grouped_recvs is {}", p.max_grouped_recvs);
  }
  if ((p.memory & TUTTI_MEMORY_CUDA) != 0 && (capabilities & TUTTI_NET_CAP_DEVICE_MEMORY) == 0) {
    return "the device reports TUTTI_MEMORY_CUDA without TUTTI_NET_CAP_DEVICE_MEMORY";
  }
  if ((p.memory & TUTTI_MEMORY_DMABUF) != 0 && (capabilities & TUTTI_NET_CAP_DMABUF) == 0) {
    return "the device reports TUTTI_MEMORY_DMABUF without TUTTI_NET_CAP_DMABUF";
  }
  return {};
}

/// The time that the calling thread was ready to run while other threads had the processors.
/// It is 0 if the kernel keeps no account of it.
std::chrono::nanoseconds time_in_run_queue() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/thread-self/schedstat", "re"), std::fclose);
  unsigned long long running = 0, ready = 0;
  if (!file || std::fscanf(file.get(), "%llu %llu", &running, &ready) != 2) return {};
  return std::chrono::nanoseconds(ready);
}

/// Measures whether `connect` or `accept` sleeps.
class SleepMeter {
 public:
  SleepMeter() : waits_(waits()), ready_(time_in_run_queue()), cpu_(cpu()), wall_(Clock::now()) {}
  /// The time that the thread slept. A thread that waits for a processor does not sleep.
  std::chrono::nanoseconds slept() const {
    const auto wall = Clock::now() - wall_;
    if (wall < kConnectSleep || waits() == waits_) return {};
    return wall - (cpu() - cpu_) - (time_in_run_queue() - ready_);
  }

 private:
  static long waits() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  }
  static std::chrono::nanoseconds cpu() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  long waits_;
  std::chrono::nanoseconds ready_;
  std::chrono::nanoseconds cpu_;
  Clock::time_point wall_;
};

}  // namespace

Status Violation::status(std::string_view network, std::string_view where) const {
  return {Code::kInternal,
          fmt::format("the plugin of network '{}' breaks rule {} in entry '{}' {}: {}; the rule says: {}", network,
                      rule->number, entry, where, what, rule->sentence.substr(0, rule->sentence.size() - 1))};
}

/// The entries of the table.
struct CheckedNetwork::Entries {
  static const CheckedNetwork& network(const Context& context) { return *context.network; }
  static const tutti_network_ops& inner(const Context& context) { return *context.network->options_.ops; }

  /// Runs `body`, which calls the plugin's entry.
  template <class Body>
  static int32_t run(const CheckedNetwork& network, const char* entry, Body&& body) {
    violation.reset();
    failure_text.clear();
    int32_t code = TUTTI_OK;
    try {
      code = body();
    } catch (const std::exception& error) {
      return violate(2, entry, fmt::format("it throws '{}'", error.what()));
    } catch (...) {
      return violate(2, entry, "it throws an exception of an unknown type");
    }
    if (code == TUTTI_OK || code == TUTTI_AGAIN) return code;
    failure_text = network.options_.last_failure();
    if (code < TUTTI_OK || code > TUTTI_INTERNAL) {
      return violate(3, entry, fmt::format("it returns {}, which is no TUTTI_* code", code));
    }
    if (failure_text.empty()) {
      return violate(3, entry, fmt::format("it returns '{}' and gives no reason", to_string(static_cast<Code>(code))));
    }
    return code;
  }
  /// The same for an entry that returns nothing.
  template <class Body>
  static void run_closing(const CheckedNetwork& network, const char* entry, Body&& body) {
    const auto returns = [&]() -> int32_t { return body(), TUTTI_OK; };
    if (run(network, entry, returns) == TUTTI_OK) return;
    network.options_.on_closing(*take_violation());
  }

  static int32_t create(void* self, uint64_t communicator, void** out) {
    const auto& network = *static_cast<const CheckedNetwork*>(self);
    auto made = std::make_unique<Context>();
    made->network = &network;
    const int32_t code = run(network, "create", [&] {
      return network.options_.ops->create(network.options_.plugin, communicator, &made->inner);
    });
    if (code == TUTTI_OK) *out = made.release();
    return code;
  }
  static void destroy(void* raw) {
    const std::unique_ptr<Context> context(static_cast<Context*>(raw));
    run_closing(network(*context), "destroy", [&] { inner(*context).destroy(context->inner); });
  }

  static int32_t device_count(void* raw, uint32_t* count) {
    Context& context = context_of(raw);
    uint32_t again = 0;
    const auto ask = [&](uint32_t* out) {
      return run(network(context), "device_count", [&] { return inner(context).device_count(context.inner, out); });
    };
    if (const int32_t code = ask(count); code != TUTTI_OK) return code;
    if (const int32_t code = ask(&again); code != TUTTI_OK) return code;
    if (again == *count) return TUTTI_OK;
    return violate(5, "device_count", fmt::format("it says {} after it said {}", again, *count));
  }
  static int32_t properties(void* raw, uint32_t device, tutti_net_properties* out) {
    Context& context = context_of(raw);
    const auto ask = [&](tutti_net_properties* to) {
      to->struct_size = sizeof *to;
      return run(network(context), "properties", [&] { return inner(context).properties(context.inner, device, to); });
    };
    if (const int32_t code = ask(out); code != TUTTI_OK) return code;
    tutti_net_properties again{};
    if (const int32_t code = ask(&again); code != TUTTI_OK) return code;
    if (!is_same(*out, again)) {
      return violate(5, "properties", fmt::format("device {} has other properties at the second call", device));
    }
    if (std::string why = out_of_range(*out); !why.empty()) {
      return violate(6, "properties", fmt::format("device {}: {}", device, why));
    }
    std::string why = contradiction(*out, network(context).options_.capabilities);
    return why.empty() ? TUTTI_OK : violate(7, "properties", fmt::format("device {}: {}", device, why));
  }

  static int32_t listen(void* raw, uint32_t device, tutti_net_handle* handle, void** out) {
    Context& context = context_of(raw);
    auto made = std::make_unique<Listener>();
    made->context = &context;
    const int32_t code = run(network(context), "listen",
                             [&] { return inner(context).listen(context.inner, device, handle, &made->inner); });
    if (code == TUTTI_OK) *out = made.release();
    return code;
  }
  /// The result of connect and accept, of which `state` is this layer's.
  static int32_t hand_out(Context& context, const char* entry, int32_t code, const SleepMeter& meter, void* connection,
                          std::unique_ptr<Pending> pending, void** state, void** out) {
    *state = nullptr;
    if (code != TUTTI_OK && code != TUTTI_AGAIN) return code;
    const auto slept = meter.slept();
    if (slept >= kCertainSleep || (slept >= kConnectSleep && ++context.connect_sleeps >= kMostConnectSleeps)) {
      return violate(9, entry,
                     fmt::format("it slept for {:.0f} ms", std::chrono::duration<double, std::milli>(slept).count()));
    }
    if ((code == TUTTI_OK) != (connection != nullptr)) {
      return violate(
          8, entry,
          code == TUTTI_OK ? "it returns TUTTI_OK without a connection" : "it returns TUTTI_AGAIN with a connection");
    }
    if (code == TUTTI_AGAIN) {
      if (pending->inner != nullptr) *state = pending.release();
      return code;
    }
    auto made = std::make_unique<Connection>();
    made->context = &context;
    made->inner = connection;
    context.arming.moved();
    *out = made.release();
    return TUTTI_OK;
  }
  static std::unique_ptr<Pending> take_pending(Context& context, void** state) {
    if (*state != nullptr) return std::unique_ptr<Pending>(static_cast<Pending*>(*state));
    auto made = std::make_unique<Pending>();
    made->context = &context;
    return made;
  }
  static int32_t connect(void* raw, uint32_t device, const tutti_net_handle* handle, void** state, void** out) {
    Context& context = context_of(raw);
    auto pending = take_pending(context, state);
    void* connection = nullptr;
    const SleepMeter meter;
    const int32_t code = run(network(context), "connect", [&] {
      return inner(context).connect(context.inner, device, handle, &pending->inner, &connection);
    });
    return hand_out(context, "connect", code, meter, connection, std::move(pending), state, out);
  }
  static int32_t accept(void* raw, void** state, void** out) {
    const auto& listener = *static_cast<const Listener*>(raw);
    Context& context = *listener.context;
    auto pending = take_pending(context, state);
    context.arming.look();
    void* connection = nullptr;
    const SleepMeter meter;
    const int32_t code = run(network(context), "accept",
                             [&] { return inner(context).accept(listener.inner, &pending->inner, &connection); });
    return hand_out(context, "accept", code, meter, connection, std::move(pending), state, out);
  }
  static void cancel(void* raw) {
    const std::unique_ptr<Pending> pending(static_cast<Pending*>(raw));
    run_closing(network(*pending->context), "cancel", [&] { inner(*pending->context).cancel(pending->inner); });
  }

  static int32_t register_memory(void* raw, void* address, uint64_t bytes, uint32_t memory, void** registration) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("register_memory", "on a closed connection");
    const int32_t code = run(network(*to.context), "register_memory", [&] {
      return inner(*to.context).register_memory(to.inner, address, bytes, memory, registration);
    });
    if (code == TUTTI_OK) {
      to.regions.push_back({static_cast<const uint8_t*>(address), bytes, memory == TUTTI_MEMORY_HOST, *registration});
    }
    return code;
  }
  static int32_t register_dmabuf(void* raw, void* address, uint64_t bytes, uint64_t offset, int32_t fd,
                                 void** registration) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("register_dmabuf", "on a closed connection");
    return run(network(*to.context), "register_dmabuf",
               [&] { return inner(*to.context).register_dmabuf(to.inner, address, bytes, offset, fd, registration); });
  }
  static int32_t deregister_memory(void* raw, void* registration) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("deregister_memory", "on a closed connection");
    std::erase_if(to.regions, [&](const checked::Region& region) { return region.registration == registration; });
    return run(network(*to.context), "deregister_memory",
               [&] { return inner(*to.context).deregister_memory(to.inner, registration); });
  }

  /// Runs a [progress] entry of a connection within its budget.
  template <class Body>
  static int32_t run_timed(checked::Budget& budget, const Context& context, const char* entry, Body&& body) {
    budget.begin();
    const int32_t code = run(network(context), entry, body);
    std::string over = budget.end(entry);
    return over.empty() || violation ? code : violate(35, entry, std::move(over));
  }
  static int32_t post(Connection& to, int32_t code, Request* made, void** out) {
    if (made->inner == nullptr || code != TUTTI_OK) {
      to.free.push_front(made);
      return code;
    }
    to.context->arming.posted();
    *out = made;
    return code;
  }
  static int32_t send(void* raw, const void* address, uint64_t bytes, uint32_t tag, void* registration, void** out) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("send", "on a closed connection");
    Request& made = to.take();
    made.connection = &to;
    to.allow_message(bytes);
    const int32_t code = run_timed(to.send, *to.context, "send", [&] {
      return inner(*to.context).send(to.inner, address, bytes, tag, registration, &made.inner);
    });
    return post(to, code, &made, out);
  }
  static int32_t recv(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                      void* const* registrations, void** out) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("recv", "on a closed connection");
    if (count > checked::kMostParts) return fault_of_core("recv", "with too many buffers");
    Request& made = to.take();
    made.connection = &to;
    made.receives = true;
    made.count = count;
    for (uint32_t i = 0; i < count; ++i) {
      made.parts[i] = {static_cast<uint8_t*>(addresses[i]), bytes[i], to.is_on_host(addresses[i], bytes[i])};
      if (made.parts[i].poisoned) Poison::fill(made.parts[i].address, bytes[i]);
      to.allow_message(bytes[i]);
    }
    const int32_t code = run_timed(to.recv, *to.context, "recv", [&] {
      return inner(*to.context).recv(to.inner, count, addresses, bytes, tags, registrations, &made.inner);
    });
    return post(to, code, &made, out);
  }
  static int32_t flush(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes,
                       void* const* registrations, void** out) {
    auto& to = *static_cast<Connection*>(raw);
    if (to.closed) return fault_of_core("flush", "on a closed connection");
    Request& made = to.take();
    made.connection = &to;
    const int32_t code = run(network(*to.context), "flush", [&] {
      return inner(*to.context).flush(to.inner, count, addresses, bytes, registrations, &made.inner);
    });
    return post(to, code, &made, out);
  }

  static int32_t test(void* raw, int32_t* done, uint64_t* bytes) {
    auto& request = *static_cast<Request*>(raw);
    Connection& connection = *request.connection;
    *done = 0;
    if (connection.closed) return fault_of_core("test", "on a closed connection");
    if (request.done) return fault_of_core("test", "with a request that is complete or has failed");
    connection.context->arming.look();
    std::array<uint64_t, checked::kMostParts> lengths{};
    lengths.fill(kUnset);
    int32_t is_done = kUndecided;
    const int32_t code = run_timed(connection.test, *connection.context, "test", [&] {
      return inner(*connection.context).test(request.inner, &is_done, request.receives ? lengths.data() : nullptr);
    });
    if (code != TUTTI_OK && code != TUTTI_AGAIN) {
      request.done = true;
      return code;
    }
    if (is_done != 0 && is_done != 1) {
      return violate(19, "test", is_done == kUndecided ? "it does not set *done" : fmt::format("*done is {}", is_done));
    }
    if (is_done == 0) return code;
    request.done = true;
    connection.free.push_back(&request);
    if (!request.receives) {
      connection.context->arming.moved();
    } else if (const int32_t arrived = take_message(request, lengths); arrived != TUTTI_OK) {
      return arrived;
    }
    if (bytes != nullptr) std::copy_n(lengths.begin(), request.count, bytes);
    *done = 1;
    return code;
  }
  static int32_t take_message(const Request& request, const std::array<uint64_t, checked::kMostParts>& lengths) {
    for (uint32_t i = 0; i < request.count; ++i) {
      if (const int32_t code = check_part(request.parts[i], lengths[i]); code != TUTTI_OK) return code;
    }
    std::string lost = request.connection->context->arming.arrived();
    return lost.empty() ? TUTTI_OK : violate(36, "arm", std::move(lost));
  }
  /// The host sends no empty message, and none of fewer bytes than a record has.
  static int32_t check_part(const Part& part, uint64_t length) {
    if (length == kUnset) return violate(14, "test", "a receive is done, but its length is not reported");
    if (length > part.room) {
      return violate(14, "test", fmt::format("it reports {} bytes for a buffer of {} bytes", length, part.room));
    }
    if (length == 0) return violate(19, "test", "a receive is done with 0 bytes, but each message has some");
    if (!part.poisoned) return TUTTI_OK;
    if (length >= kFewest && Poison::is_whole(part.address, 0, std::min(length, kMost))) {
      return violate(19, "test", fmt::format("a receive of {} bytes is done, but its buffer is not written", length));
    }
    if (length >= 2 * kMost && Poison::is_whole(part.address, length - kMost, kMost)) {
      return violate(14, "test", fmt::format("it reports {} bytes, but the last of them are not written", length));
    }
    if (Poison::is_whole(part.address, length, std::min(kBehind, part.room - length))) return TUTTI_OK;
    return violate(14, "test",
                   fmt::format("it reports {} bytes, but wrote more: the length is too small, or it "
                               "wrote behind the message",
                               length));
  }

  static void close_connection(void* raw) {
    std::unique_ptr<Connection> connection(static_cast<Connection*>(raw));
    Context& context = *connection->context;
    run_closing(network(context), "close_connection", [&] { inner(context).close_connection(connection->inner); });
    connection->closed = true;
    const std::lock_guard lock(context.mutex);
    context.closed.push_back(std::move(connection));
    if (context.closed.size() > kMostClosed) context.closed.pop_front();
  }
  static void close_listener(void* raw) {
    const std::unique_ptr<Listener> listener(static_cast<Listener*>(raw));
    run_closing(network(*listener->context), "close_listener",
                [&] { inner(*listener->context).close_listener(listener->inner); });
  }

  static int32_t event_fd(void* raw, int32_t* fd) {
    Context& context = context_of(raw);
    const int32_t code = run(network(context), "event_fd", [&] { return inner(context).event_fd(context.inner, fd); });
    if (code != TUTTI_OK) return code;
    if (*fd < 0 || fcntl(*fd, F_GETFD) < 0) {
      return violate(7, "event_fd", fmt::format("it gives the descriptor {}, which is not open", *fd));
    }
    context.arming.set_fd(*fd);
    return TUTTI_OK;
  }
  static int32_t arm(void* raw) {
    Context& context = context_of(raw);
    const int32_t code = run_timed(context.arm, context, "arm", [&] { return inner(context).arm(context.inner); });
    if (code != TUTTI_OK && code != TUTTI_AGAIN) return code;
    std::string restless = context.arming.armed(code == TUTTI_OK);
    return restless.empty() ? code : violate(37, "arm", std::move(restless));
  }
};

CheckedNetwork::CheckedNetwork(Options options) : options_(std::move(options)) {
  const tutti_network_ops& of = *options_.ops;
  ops_ = {sizeof(tutti_network_ops),
          0,
          Entries::create,
          Entries::destroy,
          Entries::device_count,
          Entries::properties,
          Entries::listen,
          Entries::connect,
          Entries::accept,
          Entries::cancel,
          Entries::register_memory,
          of.register_dmabuf == nullptr ? nullptr : Entries::register_dmabuf,
          Entries::deregister_memory,
          Entries::send,
          Entries::recv,
          of.flush == nullptr ? nullptr : Entries::flush,
          Entries::test,
          Entries::close_connection,
          Entries::close_listener,
          of.event_fd == nullptr ? nullptr : Entries::event_fd,
          of.arm == nullptr ? nullptr : Entries::arm};
}

CheckedNetwork::~CheckedNetwork() = default;

std::optional<Violation> CheckedNetwork::take_violation() {
  return std::exchange(violation, std::nullopt);
}

std::string CheckedNetwork::take_failure_text() {
  return std::exchange(failure_text, {});
}

}  // namespace tutti::transport
