// SPDX-License-Identifier: Apache-2.0
// The settings of communicators: Tutti's own files and variables first, then the values of NCCL_* variables for
// settings that those leave open.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "config/config.h"
#include "tutti/communicator.h"

namespace tutti::nccl {

/// The settings of communicators, from all origins. One thread at a time.
class Settings {
 public:
  /// The settings of this process at this time. Also sets up the log, and names once the variables without effect.
  static Result<Settings> of_process();

  /// Takes a value for a key. False: an earlier origin has decided the key.
  bool propose(std::string_view key, std::string value);
  /// Sets a value that overrides all other origins.
  void demand(std::string_view key, std::string value);

  /// The interfaces on which ranks meet, as UniqueId::create() takes them.
  Result<std::string> interfaces() const;
  Options options() const { return options_; }

 private:
  explicit Settings(config::Config given) : given_(std::move(given)) {}
  Result<config::Config> load() const;
  Status start_log() const;

  config::Config given_;  // without NCCL_*
  Options options_;
};

/// The value of the variable: 0 or 1; with every other text `otherwise`.
bool switched(std::string_view name, bool otherwise);

}  // namespace tutti::nccl
