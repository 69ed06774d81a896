// SPDX-License-Identifier: Apache-2.0
// The C++ classes of a tuner plugin. tutti/plugin/tuner.h states the contract of each function.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>

#include "tutti/plugin/tuner.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// The candidates of a call, a range of tutti_candidate&. It refers to the pointers. (A std::ranges::transform_view
/// does not compile by clang 14 with libstdc++ 12.)
class Candidates {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = tutti_candidate;
    using pointer = tutti_candidate*;
    using reference = tutti_candidate&;

    Iterator() = default;
    explicit Iterator(tutti_candidate* const* at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    tutti_candidate* const* at_ = nullptr;
  };

  explicit Candidates(std::span<tutti_candidate* const> pointers) : pointers_(pointers) {}
  Iterator begin() const { return Iterator(pointers_.data()); }
  Iterator end() const { return Iterator(pointers_.data() + pointers_.size()); }
  size_t size() const { return pointers_.size(); }
  bool empty() const { return pointers_.empty(); }
  tutti_candidate& operator[](size_t index) const { return *pointers_[index]; }
  tutti_candidate& front() const { return *pointers_.front(); }
  tutti_candidate& back() const { return *pointers_.back(); }

 private:
  std::span<tutti_candidate* const> pointers_;
};

/// The pointers that `choose` takes. Valid as long as `candidates` does not move.
inline std::vector<tutti_candidate*> pointers_to(std::span<tutti_candidate> candidates) {
  std::vector<tutti_candidate*> pointers;
  for (tutti_candidate& one : candidates) pointers.push_back(&one);
  return pointers;
}

/// The state of a tuner for one communicator. Threads: any thread may call choose at any time.
class TunerInstance {
 public:
  virtual ~TunerInstance() = default;
  /// Fills the outputs of the candidates. Does not change a candidate whose predicted_us is negative. The result must
  /// be the same on every rank. Units: times in µs.
  virtual Status choose(const tutti_call& call, const Candidates& candidates) const = 0;

 private:
  friend class Tuner;
  Host host_;
};

/// A tuner plugin. Threads: one thread at a time.
class Tuner : public Plugin {
 public:
  using Kind = Tuner;
  static constexpr uint32_t kKind = TUTTI_KIND_TUNER;
  static constexpr Abi kAbi = {TUTTI_TUNER_ABI_MAJOR, TUTTI_TUNER_ABI_MINOR};

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
        [](void* instance, const tutti_call* call, tutti_candidate* const* candidates, uint32_t count) -> int32_t {
          const auto& tuner = *static_cast<TunerInstance*>(instance);
          return guarded(tuner.host_, [&] { return tuner.choose(*call, Candidates({candidates, count})); });
        }};
    return &ops;
  }
};

}  // namespace tutti::sdk
