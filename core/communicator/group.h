// SPDX-License-Identifier: Apache-2.0
// Groups: calls that a thread collects between group_start and group_end.
#pragma once

#include <memory>

#include "backend/call.h"
#include "tutti/communicator.h"

namespace tutti::communicator {

/// Keeps the call for group_end if this thread has a group open; true if it was kept.
bool defer(const std::shared_ptr<Communicator::State>& state, const backend::Call& call);

/// Runs a call outside any group.
Status run_now(Communicator::State& state, const backend::Call& call);

}  // namespace tutti::communicator
