// SPDX-License-Identifier: Apache-2.0
// Registered buffers: the claims of ranks, and the position of a call's output in them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/call.h"

namespace tutti::backend {

/// The claim of a rank about the buffer that it registers. Plain data.
struct Claim {
  uint64_t bytes = 0;
  uint64_t is_null = 0;
};
/// kInvalidArgument, the same on all ranks, unless their claims (by rank) fit each other.
Status check_claims(std::span<const Claim> claims);

/// The data that a rank needs to use buffers that were registered together.
struct RegisteredBuffer {
  uint64_t number = 0;  ///< number of the registration, from 1; equal on all ranks
  const uint8_t* own = nullptr;
  uint64_t bytes = 0;
  /// The memory behind the own buffer: an allocation, or pieces one behind the other. `id`: never belongs to different
  /// memory.
  struct Piece {
    const uint8_t* begin = nullptr;
    uint64_t id = 0;
  };
  std::vector<Piece> pieces;
  std::vector<uint8_t*> of_rank;  ///< the buffers, as this rank's GPU sees them
  std::shared_ptr<void> mapped;   ///< keeps them mapped

  bool overlaps(const void* begin, uint64_t length) const;
};

/// The buffers of one rank, which do not overlap. One thread at a time.
class Registrations {
 public:
  bool empty() const { return buffers_.empty(); }
  void add(RegisteredBuffer buffer);
  void end(uint64_t number);

  /// The buffer that holds this memory; null: none does.
  const RegisteredBuffer* find(const void* begin, uint64_t bytes) const;
  /// The first buffer that overlaps it; null: none does.
  const RegisteredBuffer* overlapping(const void* begin, uint64_t bytes) const;

 private:
  std::vector<RegisteredBuffer> buffers_;  // by address
};

/// Whether ranks know the positions of all outputs: all ranks have an output, at equal offsets (unlike the outputs of a
/// reduce_scatter in place).
bool has_registrable_output(Collective collective);

/// Bytes of the output of a call on `size` ranks; 0: it has no registrable output.
uint64_t registrable_output_bytes(const Call& call, int size);

/// A word for a position in registered memory; ranks compare it. Never 0.
uint32_t place_of(uint64_t number, uint64_t offset);

}  // namespace tutti::backend
