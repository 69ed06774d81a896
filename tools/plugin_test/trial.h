// SPDX-License-Identifier: Apache-2.0
// One run of a rule of an algorithm, a protocol or a tuner, in a process of its own.
//
// A violation ends the process at once, after it was reported: objects of a faulty plugin are not safe to destroy.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "plugin/loader.h"
#include "tools/plugin_test/request.h"
#include "tools/plugin_test/rule.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// The state of a trial, in memory that the watching process shares.
struct SharedTrialState {
  std::atomic<int64_t> since_ns;  ///< when the entry was called, on the steady clock; 0: no entry. Release and acquire:
                                  ///< `entry` is written before
  std::array<char, 32> entry;

  /// The entry is called now.
  void enter(std::string_view name);
};

/// Ends each of the four parts of a report: result, rule, text, answers.
inline constexpr char kEndOfPart = '\0';

class Trial {
 public:
  struct Options {
    const Rule* rule = nullptr;
    const Request* request = nullptr;
    SharedTrialState* shared_state = nullptr;
    int results = -1;  ///< a pipe to the watching process
    std::shared_ptr<plugin::Plugin> plugin;
  };
  explicit Trial(Options options);
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const plugin::Plugin& plugin() const { return *options_.plugin; }
  const Request& request() const { return *options_.request; }
  template <class Ops>
  const Ops& ops() const {
    return *options_.plugin->ops<Ops>();
  }
  void* self() const { return options_.plugin->self(); }
  std::mt19937_64& random() { return random_; }

  // Results. The first two end the process.
  [[noreturn]] void violate(std::string_view rule, const std::string& text);
  [[noreturn]] void violate(const std::string& text) { violate(options_.rule->number, text); }
  [[noreturn]] void skip(const std::string& reason);
  void pass();
  /// Violates `rule`, or the rule about reasons if the plugin gave none. `what`: "search".
  [[noreturn]] void violate_failure(std::string_view rule, const std::string& what, const Status& failure);
  /// An answer that a second process must give, too.
  void answer(const std::string& line);

  /// Calls an entry where the watching process can see it. An exception violates the rule about exceptions.
  template <class Body>
  auto call(std::string_view entry, Body&& body) {
    const Visible visible(*options_.shared_state, entry);
    try {
      return body();
    } catch (const std::exception& error) {
      violate_by_exception(entry, error.what());
    } catch (...) {
      violate_by_exception(entry, "an exception of an unknown type");
    }
  }

 private:
  class Visible {
   public:
    Visible(SharedTrialState& shared_state, std::string_view entry);
    ~Visible() { shared_state_.since_ns.store(0, std::memory_order_release); }
    Visible(const Visible&) = delete;
    Visible& operator=(const Visible&) = delete;

   private:
    SharedTrialState& shared_state_;
  };
  [[noreturn]] void violate_by_exception(std::string_view entry, std::string_view text);
  void report(std::string_view result, std::string_view rule, const std::string& text);

  Options options_;
  std::mt19937_64 random_;
  std::string answers_;
};

/// Numbers of the rules that any rule of a kind may find violated: "ALG-1" and so on.
std::string returns_rule(plugin::Kind kind);
std::string throws_rule(plugin::Kind kind);
std::string reasons_rule(plugin::Kind kind);
std::string crashes_rule(plugin::Kind kind);

/// Runs one rule in this process, as the kit's child. Returns the exit code.
Result<int> run_trial(const Request& request);

}  // namespace tutti::tools::plugin_test
