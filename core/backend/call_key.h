// SPDX-License-Identifier: Apache-2.0
// The keys of calls that differ only in their buffers, and the prepared objects for each key.
#pragma once

#include <memory>
#include <tuple>
#include <unordered_map>

#include "backend/call.h"
#include "tuner/selector.h"

namespace tutti::backend {

struct Shape {
  uint64_t kind = 0;  ///< collective, type, op, in place, registered
  uint64_t count = 0;
  uint64_t root = 0;
  bool operator==(const Shape&) const = default;

  static Shape of(const Call& call, bool in_place) {
    return {static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 8 |
                static_cast<uint64_t>(call.reduction.op) << 16 | (in_place ? uint64_t{1} << 24 : 0) |
                (call.registered ? uint64_t{1} << 25 : 0),
            call.count, static_cast<uint64_t>(call.root)};
  }
};

/// The calls that run one program: they differ in size, type and operation at most. Orders std::map.
struct CallKey {
  tuner::Decision decision;  ///< the predicted time, which depends on the size, does not count
  Collective collective = Collective::kAllReduce;
  uint32_t root = 0;
  bool in_place = false;
  bool registered = false;  ///< messages may be stored to registered outputs

  bool operator<(const CallKey& other) const { return fields() < other.fields(); }

 private:
  std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, Collective, uint32_t, bool, bool> fields() const {
    return {
        decision.algorithm, decision.variant, decision.protocol, decision.channels, decision.network, collective, root,
        in_place,           registered};
  }
};

/// Keeps prepared objects by key; finds the last used object at once. When more than `kMost` are kept, all are prepared
/// again. One thread at a time.
template <class Map, size_t kMost>
class Kept {
 public:
  using Key = typename Map::key_type;
  using Prepared = typename Map::mapped_type::element_type;

  /// `make()` prepares a new object.
  template <class Make>
  Result<Prepared*> get(const Key& key, Make&& make) {
    if (last_ != nullptr && key == last_key_) return last_;
    auto found = kept_.find(key);
    if (found == kept_.end()) {
      TUTTI_ASSIGN(std::unique_ptr<Prepared> made, make());
      if (kept_.size() >= kMost) kept_.clear();
      found = kept_.emplace(key, std::move(made)).first;
    }
    last_key_ = key;
    last_ = found->second.get();
    return last_;
  }

 private:
  Map kept_;
  Key last_key_;
  Prepared* last_ = nullptr;
};

/// Prepared calls, by shape.
template <class Prepared>
class ByShape {
 public:
  /// `make(in_place)` prepares a call whose shape is new.
  template <class Make>
  Result<Prepared*> get(const Call& call, int rank, Make&& make) {
    const bool in_place = backend::in_place(call, rank);
    return kept_.get(Shape::of(call, in_place), [&] { return make(in_place); });
  }

 private:
  struct Hash {
    size_t operator()(const Shape& shape) const {
      uint64_t hash = shape.kind * 0x9e3779b97f4a7c15u;
      hash = (hash ^ shape.count) * 0x9e3779b97f4a7c15u;
      hash = (hash ^ shape.root) * 0x9e3779b97f4a7c15u;
      return static_cast<size_t>(hash ^ hash >> 32);
    }
  };

  Kept<std::unordered_map<Shape, std::unique_ptr<Prepared>, Hash>, 4096> kept_;
};

}  // namespace tutti::backend
