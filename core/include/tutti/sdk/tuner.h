// SPDX-License-Identifier: Apache-2.0
// The C++ classes of a tuner plugin. tutti/plugin/tuner.h states the contract of each function.
#pragma once

#include <span>

#include "tutti/plugin/tuner.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// The state of a tuner for one communicator. Threads: any thread may call choose at any time.
class TunerInstance {
 public:
  virtual ~TunerInstance() = default;
  /// Fills the outputs of the candidates. Does not change a candidate whose predicted_us is negative. The result must
  /// be the same on every rank. Units: times in µs.
  virtual Status choose(const tutti_call& call, std::span<tutti_candidate> candidates) const = 0;

 private:
  friend class Tuner;
  Host host_;
};

/// A tuner plugin. Threads: one thread at a time.
class Tuner : public Plugin {
 public:
  using Kind = Tuner;
  static constexpr uint32_t kKind = TUTTI_KIND_TUNER;

  /// Prepares the tuner for one communicator. The topology is valid during the call.
  virtual Result<std::unique_ptr<TunerInstance>> create(const tutti_topology& topology) = 0;

  static const tutti_tuner_ops* table() {
    static const tutti_tuner_ops ops = {
        sizeof(tutti_tuner_ops), 0,
        [](void* self, const tutti_topology* topology, void** instance) -> int32_t {
          auto& tuner = *static_cast<Tuner*>(self);
          return guarded(tuner.host(), [&]() -> Status {
            TUTTI_ASSIGN(std::unique_ptr<TunerInstance> made, tuner.create(*topology));
            made->host_ = tuner.host();
            *instance = made.release();
            return {};
          });
        },
        [](void* instance) { delete static_cast<TunerInstance*>(instance); },
        [](void* instance, const tutti_call* call, tutti_candidate* candidates, uint32_t count) -> int32_t {
          const auto& tuner = *static_cast<TunerInstance*>(instance);
          return guarded(tuner.host_, [&] { return tuner.choose(*call, {candidates, count}); });
        }};
    return &ops;
  }
};

}  // namespace tutti::sdk
