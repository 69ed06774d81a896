// SPDX-License-Identifier: Apache-2.0
// One rank's part of a sequence: it makes the calls of a round, and checks all of its memory.
#pragma once

#include <span>

#include "integration/random/play_device.h"
#include "integration/random/sequence.h"

namespace tutti::sequence {

class Player {
 public:
  explicit Player(PlayDevice& device) : device_(device) {}

  /// Plays a round with communicators of this rank. A failure says which call went wrong, and how.
  Status play(const Round& round, std::span<Communicator> communicators);

 private:
  /// A call with its buffers, as offsets into the image.
  struct Placed {
    Call call;
    size_t input;
    size_t output;
    size_t input_bytes;
    uint64_t input_hash;  ///< hash of an input that the call may not change
  };
  struct PlacedUnit {
    std::vector<Placed> calls;
    const Unit* unit;
  };

  void lay_out(const Round& round);
  Placed place(const Call& call);
  size_t reserve(size_t bytes, size_t shift);
  /// Poisons the image, and fills the inputs of play number `play`.
  void prepare(int play);
  Status make(const Round& round, int play);
  Status await();
  /// Makes the units that are captured, or the units that are not.
  Status make_units(bool eager);
  /// Nothing orders a communicator's calls on different streams, as callers need not.
  Status make_unit(const PlacedUnit& unit);
  Status make_calls(const PlacedUnit& unit);
  Status check(int play) const;
  Status check(const Placed& placed, int play) const;
  Status check_guards() const;
  std::string describe(const Placed& placed) const;
  std::string describe_all() const;

  PlayDevice& device_;
  std::span<Communicator> communicators_;
  std::vector<PlacedUnit> units_;
  std::vector<std::byte> image_;
  struct Region {
    size_t begin;
    size_t bytes;
  };
  std::vector<Region> regions_;  // ascending; the memory between them is a guard
  size_t end_ = 0;
  std::byte* base_ = nullptr;  // address of the image, for the calls
};

}  // namespace tutti::sequence
