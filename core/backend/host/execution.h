// SPDX-License-Identifier: Apache-2.0
// A call made ready to run: one work per channel. Prepared once per shape of call; a later call
// of the same shape only sets its buffers.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend/call.h"
#include "backend/call_key.h"
#include "backend/call_shape.h"
#include "backend/host/driver.h"
#include "backend/host/programs.h"
#include "tuner/selector.h"

namespace tutti::backend {

struct Execution {
  tuner::Decision decision;
  std::vector<tutti_work> works;
  std::vector<Job> jobs;
  CallShape shape;
  std::vector<uint64_t> scratch_begins;  ///< by work, in the scratch memory of all executions; empty: no work has any

  /// Sets the parts that differ between calls of one shape. `number` counts the calls of this rank on its communicator;
  /// `digest` is the digest of the history up to this call; `scratch` is the scratch memory of all executions.
  void bind(const Call& call, uint64_t number, const Turn& turn, uint64_t digest, uint8_t* scratch = nullptr);
};

/// A digest of the history as the works carry it.
tutti_signature signature_of(uint64_t digest);

/// Prepares executions and keeps them. One thread at a time.
class Executions {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    bool check_calls = true;
    uint64_t direct_minimum = 0;  ///< bytes of a block from which on peers may read buffers in place; 0: never
    bool fences = true;           ///< see tutti_work
    const uint32_t* abort = nullptr;
  };
  Executions(const Options& options, const tuner::Selector& selector, Programs& programs)
      : options_(options), selector_(selector), programs_(programs) {}

  Result<Execution*> prepare(const Call& call);
  /// Appends the works of one send or receive to `execution`, which is not kept.
  Status append_message(Execution& execution, const Call& call);
  /// As long as the largest need of an execution so far. Calls run one at a time, so they share it. A later prepare()
  /// may move it.
  uint8_t* scratch() { return reinterpret_cast<uint8_t*>(scratch_.get()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  struct KeptDecision {
    Shape shape;
    std::optional<tuner::Decision> decision;
  };
  Result<std::unique_ptr<Execution>> make(const Call& call, bool in_place);
  /// The decision of a send or receive. A group makes many messages of few sizes, so the last decisions are kept.
  Result<tuner::Decision> decide_message(const Call& call);
  Status add_works(Execution& execution, const Call& call, const Program& program, uint32_t protocol);
  /// kSystem: the host has no memory of this size.
  Status reserve_scratch(Execution& execution);

  Options options_;
  const tuner::Selector& selector_;
  Programs& programs_;
  ByShape<Execution> kept_;
  std::array<KeptDecision, 16> message_decisions_;
  std::unique_ptr<Line[]> scratch_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace tutti::backend
