// SPDX-License-Identifier: Apache-2.0
// check.plugins: a layer between the core and a network plugin, which holds each call of an entry to the rules that a
// running job can see (plugin/network_rules.h). The layer is a table of its own: its entries call the plugin's.
//
// An entry that breaks a rule returns TUTTI_INTERNAL, and take_violation() gives the rule. Some violations show only in
// time or in many calls, so a single slow call is no violation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "plugin/network_rules.h"
#include "tutti/plugin/network.h"
#include "tutti/status.h"

namespace tutti::transport {

/// A rule that the plugin broke.
struct Violation {
  const plugin::NetworkRule* rule = nullptr;
  const char* entry = "";  ///< "test"
  std::string what;
  /// "plugin of network 'mock' breaks rule NET-14 in entry 'test' on the connection from rank 0 ...: ...".
  Status status(std::string_view network, std::string_view where) const;
};

/// Threads: as the contract demands of callers of the table.
class CheckedNetwork {
 public:
  struct Options {
    const tutti_network_ops* ops = nullptr;
    void* plugin = nullptr;  ///< `self` of the plugin
    uint64_t capabilities = 0;
    std::function<std::string()> last_failure;         ///< why the plugin's last call in this thread failed
    std::function<void(const Violation&)> on_closing;  ///< a violation of an entry that returns nothing
  };
  explicit CheckedNetwork(Options options);
  ~CheckedNetwork();
  CheckedNetwork(const CheckedNetwork&) = delete;
  CheckedNetwork& operator=(const CheckedNetwork&) = delete;

  /// To be called with this object as `self`.
  const tutti_network_ops& ops() const { return ops_; }
  /// The violation of this thread's last call; nothing: it broke no rule that can be seen. Forgets it.
  static std::optional<Violation> take_violation();
  /// The text of this thread's last call that failed without a violation. Forgets it.
  static std::string take_failure_text();

 private:
  struct Entries;  // of the table
  friend struct Entries;

  const Options options_;
  tutti_network_ops ops_{};
};

}  // namespace tutti::transport
