// SPDX-License-Identifier: Apache-2.0
// The settings that communicators are made with: Tutti's own files and variables first, then what variables named
// NCCL_* say where those are silent.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "config/config.h"
#include "tutti/communicator.h"

namespace tutti::nccl {

class Settings {
 public:
  /// Of this process, now. Sets up the log, too, and names once what has no effect.
  static Result<Settings> of_process();

  /// Takes a value for a key that nobody has decided so far.
  void propose(std::string_view key, std::string value);
  /// Takes a value whatever others say.
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

/// NCCL_COMM_BLOCKING: 0 or 1; anything else: `configured`.
bool blocking_of(bool configured);

}  // namespace tutti::nccl
