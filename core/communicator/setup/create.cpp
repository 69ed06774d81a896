// SPDX-License-Identifier: Apache-2.0
// The ways to join a communicator.
#include <atomic>
#include <cstdlib>

#include "communicator/own_interface.h"
#include "communicator/state.h"
#include "config/job.h"
#include "launcher/meeting.h"
#include "launcher/rank_assignment.h"

namespace tutti {
namespace {

Result<config::Config> load_config(const Options& options) {
  return config::load_job(options.config_file, options.settings, options.settings_origin);
}

}  // namespace

Result<config::Config> Communicator::State::config_for(const std::optional<Options>& options) const {
  return options ? load_config(*options) : Result<config::Config>(config_);
}

Result<Communicator> Communicator::create(const UniqueId& id, int rank, int rank_count, const Options& options) {
  TUTTI_ASSIGN(config::Config config, load_config(options));
  TUTTI_ASSIGN(std::shared_ptr<State> state, State::create(id, rank, rank_count, std::move(config)));
  return Communicator(std::move(state));
}

Result<Communicator> Communicator::from_environment(const Options& options) {
  static std::atomic<bool> called{false};
  if (called.exchange(true)) {
    return Status(Code::kFailedPrecondition,
                  "a process joins the job of its launcher once; make more communicators by split()");
  }
  TUTTI_ASSIGN(config::Config config, load_config(options));
  TUTTI_ASSIGN(const auto launched, launcher::assignment_of(std::getenv));
  const launcher::RankAssignment assignment = launched.value_or(launcher::RankAssignment{});
  TUTTI_ASSIGN(const UniqueId id,
               launched ? launcher::meet(assignment, std::getenv, config) : communicator::create_id(config));
  TUTTI_ASSIGN(std::shared_ptr<State> state,
               State::create(id, assignment.rank, assignment.rank_count, std::move(config)));
  return Communicator(std::move(state));
}

}  // namespace tutti
