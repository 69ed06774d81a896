// SPDX-License-Identifier: Apache-2.0
// The C++ classes that all kinds of plugins share. Header only. An author derives from the class of a kind
// (tutti/sdk/algorithm.h, ...), and names the derived class once:
//
//   class Ring : public tutti::sdk::Algorithm { ... };
//   TUTTI_PLUGIN(Ring, "ring", "0.1.0", "rings through all ranks")
//
// Functions of the author return failures as Status. If an exception leaves the author's code, the host gets
// TUTTI_INTERNAL with the text of the exception (PLG-4, PLG-14).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/plugin/abi.h"
#include "tutti/status.h"

namespace tutti::sdk {

/// Conversions between the strings of the ABI and C++. No copy: the result is valid as long as the argument's memory.
inline tutti_str borrow(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::string_view view(tutti_str text) {
  return {text.data, text.size};
}

/// Hands a struct of the ABI to a reader that may know fewer of its fields (PLG-5). `to->struct_size` holds the bytes
/// that the reader knows, and then the bytes that were written.
template <class Struct>
void hand_over(const Struct& from, Struct* to) {
  const auto bytes = static_cast<uint32_t>(std::min<size_t>(to->struct_size, sizeof from));
  std::memcpy(to, &from, bytes);
  to->struct_size = bytes;
}

/// The version of the ABI of a kind of plugins.
struct Abi {
  uint32_t major, minor;
};

/// The functions of the host: the log, and the settings of the plugin. Threads: any.
class Host {
 public:
  explicit Host(const tutti_host* host = nullptr) : host_(host) {}

  /// Logs a line. `level` is a TUTTI_LOG_* value.
  void log(int32_t level, std::string_view text) const {
    if (host_ != nullptr) host_->log(host_->context, level, borrow(text));
  }
  /// Stores the text of a failure that this thread is about to return, and returns its code. The thunks of the SDK call
  /// it for every Status that they return.
  int32_t fail(const Status& status) const {
    if (host_ != nullptr && status.code() != Code::kAgain) host_->fail(host_->context, borrow(status.text()));
    return static_cast<int32_t>(status.code());
  }

  /// The value of a setting that settings() declares, or of "timeouts.peer_loss" or "net.failover". Units: sizes in
  /// bytes, durations in nanoseconds, booleans as 0 or 1. Errors: for a name that is not declared, logs an error and
  /// returns 0 or an empty value.
  int64_t integer(std::string_view name) const { return get(name).integer; }
  bool boolean(std::string_view name) const { return integer(name) != 0; }
  std::string text(std::string_view name) const { return std::string(view(get(name).text)); }
  std::vector<std::string> list(std::string_view name) const {
    const tutti_value value = get(name);
    std::vector<std::string> items;
    for (uint64_t i = 0; i < value.list_count; ++i) items.emplace_back(view(value.list[i]));
    return items;
  }

 private:
  tutti_value get(std::string_view name) const {
    tutti_value value{};
    value.struct_size = sizeof value;
    if (host_ != nullptr && host_->config_get(host_->context, borrow(name), &value) != TUTTI_OK) {
      log(TUTTI_LOG_ERROR,
          std::string("a bug: reads the setting '").append(name).append("', which it does not declare"));
    }
    return value;
  }
  const tutti_host* host_;
};

/// One setting of a plugin, an entry of the table that `Derived::settings()` returns. Give static strings: they must be
/// valid as long as the shared object is loaded. minimum > maximum: no limits, but sizes and durations are >= 0.
inline tutti_config_key setting(uint32_t type, std::string_view name, std::string_view default_text,
                                std::string_view help, int64_t minimum = 1, int64_t maximum = 0) {
  return {sizeof(tutti_config_key), type, borrow(name), borrow(default_text), borrow(help), minimum, maximum};
}

/// The base of the classes of all kinds. An open plugin has one instance.
class Plugin {
 public:
  virtual ~Plugin() = default;
  /// The host calls it once, before all other functions. Fails if the plugin cannot run on this machine. host() returns
  /// the same functions until the plugin is closed.
  virtual Status open(const Host& /*host*/) { return {}; }
  const Host& host() const { return host_; }

  /// A derived class with capabilities or settings declares functions of the same names.
  static constexpr uint64_t capabilities() { return 0; }
  static std::vector<tutti_config_key> settings() { return {}; }

 protected:
  Host host_;  // set before open()

  template <class Derived>
  friend int32_t describe(tutti_plugin* out, std::string_view name, std::string_view version,
                          std::string_view description) noexcept;
};

/// Runs `body`, which returns Status or int32_t, and returns its code. No exception leaves: it becomes TUTTI_INTERNAL,
/// with its text passed to host.fail.
template <class Body>
int32_t guarded(const Host& host, Body&& body) noexcept {
  try {
    if constexpr (std::is_same_v<decltype(body()), Status>) {
      const Status status = body();
      return status.ok() ? TUTTI_OK : host.fail(status);
    } else {
      return body();
    }
  } catch (const std::exception& error) {
    return host.fail(Status(Code::kInternal, std::string("unexpected exception: ") + error.what()));
  } catch (...) {
    return host.fail(Status(Code::kInternal, "unexpected exception of an unknown type"));
  }
}

/// Fills the plugin's table for the class Derived. Derived::Kind is the class of its kind, and Derived::Kind::table()
/// is the table of the kind's functions. Errors: TUTTI_VERSION_MISMATCH if `out` is null or without room for a size;
/// TUTTI_INTERNAL if settings() throws.
template <class Derived>
int32_t describe(tutti_plugin* out, std::string_view name, std::string_view version,
                 std::string_view description) noexcept try {
  if (out == nullptr || out->struct_size < sizeof out->struct_size) return TUTTI_VERSION_MISMATCH;
  static const std::vector<tutti_config_key> keys = Derived::settings();
  tutti_plugin table{};
  table.struct_size = sizeof table;
  table.kind = Derived::kKind;
  table.abi_major = Derived::kAbi.major;
  table.abi_minor = Derived::kAbi.minor;
  table.name = borrow(name);
  table.version = borrow(version);
  table.description = borrow(description);
  table.capabilities = Derived::capabilities();
  table.config_keys = keys.data();
  table.config_key_count = keys.size();
  table.open = [](const tutti_host* host, void** self) -> int32_t {
    return guarded(Host(host), [&]() -> Status {
      auto plugin = std::make_unique<Derived>();
      static_cast<Plugin&>(*plugin).host_ = Host(host);
      TUTTI_TRY(plugin->open(Host(host)));
      *self = static_cast<typename Derived::Kind*>(plugin.release());
      return {};
    });
  };
  table.close = [](void* self) { delete static_cast<typename Derived::Kind*>(self); };
  table.ops = Derived::Kind::table();
  hand_over(table, out);
  return TUTTI_OK;
} catch (...) {
  return TUTTI_INTERNAL;
}

}  // namespace tutti::sdk

/// Defines the only exported symbol of a plugin, for its class. Use it once per plugin, outside of all namespaces.
#define TUTTI_PLUGIN(Class, name, version, description)                                                \
  extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) { \
    return ::tutti::sdk::describe<Class>(out, name, version, description);                             \
  }
