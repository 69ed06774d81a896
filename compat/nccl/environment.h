// SPDX-License-Identifier: Apache-2.0
// The settings that communicators are made with: Tutti's own files and variables first, then what variables named
// NCCL_* say where those are silent.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "config/config.h"
#include "tutti/communicator.h"

namespace tutti::nccl {

/// How ranks meet.
struct Rendezvous {
  std::string interfaces;          ///< as UniqueId::create() takes them
  std::chrono::nanoseconds limit;  ///< for all to come
};

class Settings {
 public:
  /// Of this process, now. Sets up the log, too, and names once what has no effect.
  static Result<Settings> of_process();

  /// Takes a value for a key, unless somebody has decided before: false.
  bool propose(std::string_view key, std::string value);
  /// Takes a value whatever others say.
  void demand(std::string_view key, std::string value);

  Result<Rendezvous> rendezvous() const;
  Options options() const { return options_; }

 private:
  explicit Settings(config::Config given) : given_(std::move(given)) {}
  Result<config::Config> load() const;
  Status start_log() const;

  config::Config given_;  // without NCCL_*
  Options options_;
};

/// What the variable says: 0 or 1; anything else: `otherwise`.
bool switched(std::string_view name, bool otherwise);

}  // namespace tutti::nccl
