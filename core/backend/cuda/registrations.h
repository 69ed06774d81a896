// SPDX-License-Identifier: Apache-2.0
// Registered buffers of GPUs: each rank maps the buffers of all ranks, so that a call can store to their outputs.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "backend/cuda/streams.h"
#include "backend/registrations.h"
#include "bootstrap/bootstrap.h"
#include "device/cuda/allocation.h"
#include "device/cuda/segments.h"
#include "tutti/plugin/cuda.h"

namespace tutti::backend {

/// The position of a call's output.
struct RegisteredPlace {
  const RegisteredBuffer* buffer = nullptr;
  uint64_t offset = 0;
};

/// One thread at a time.
class GpuRegistrations {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    int device = 0;
    bool reaches_all = false;  ///< every GPU reaches every other; the same on all ranks
  };
  GpuRegistrations(const Options& options, bootstrap::Bootstrap& bootstrap)
      : options_(options), bootstrap_(bootstrap) {}

  /// Collective, after claims were found to fit. Returns the registration's number. Returns nothing, on all ranks, if a
  /// rank cannot share its buffer or map the buffer of a peer. kFailedPrecondition on all ranks if a buffer overlaps a
  /// registered buffer. `loaded`: the state of the kernels that would use the buffer here; if it is a failure, no rank
  /// registers.
  Result<std::optional<uint64_t>> add(void* buffer, uint64_t bytes, const Status& loaded, base::Time deadline);
  /// Unmaps. Nothing on this GPU uses it any more.
  void end(uint64_t number);

  bool empty() const { return known_.empty(); }
  /// Nothing: the output lies in no registered buffer, or not every rank has an output. Valid until the next call.
  std::optional<RegisteredPlace> find(const Call& call);
  /// Says where outputs are.
  void set_peer_outputs(const RegisteredPlace& place, tutti_cuda_launch& launch) const;
  /// Sets the side stream, on which work may run beside the call's stream.
  Status attach_side_stream(Stream stream, tutti_cuda_copies& copies) const;

 private:
  /// The offer of a rank for its buffer. Plain data.
  struct Offer {
    cuda::MemoryAddress address;  ///< address of the allocation, if CUDA shares it by address
    base::FdPost::Address post;   ///< else pieces of it go by files; all 0: there is no socket
    uint32_t segments = 0;        ///< number of pieces
    uint64_t offset = 0;          ///< offset of the buffer in the allocation, or in the first piece
    int64_t left_ms = 0;          ///< time until this rank gives the registration up
    uint32_t is_shared = 0;
    uint32_t overlaps = 0;
  };

  /// The resources behind this rank's offer.
  struct Shared {
    std::optional<base::FdPost> post;
    cuda::Segments segments;  ///< none: the allocation is shared as one
  };
  Result<Offer> offer(void* buffer, uint64_t bytes, RegisteredBuffer& own, Shared& shared);
  void forget_freed(const void* begin, uint64_t bytes);
  Result<std::vector<base::FdPost::Parcel>> give_segments(const std::vector<Offer>& offers, Shared& shared) const;
  Status map(const std::vector<Offer>& offers, Shared& shared, RegisteredBuffer& own) const;
  Result<bool> all_say(bool yes, base::Time deadline) const;

  Options options_;
  bootstrap::Bootstrap& bootstrap_;
  Registrations known_;
  uint64_t latest_ = 0;
  std::array<SideStream, 2> sides_;  // for calls outside of captures, and in them
};

}  // namespace tutti::backend
