// SPDX-License-Identifier: Apache-2.0
// Calls made ready for kernels: plans lowered, and cut for their sizes. Kept for as long as the communicator lives.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "communicator/call.h"
#include "communicator/plans.h"
#include "communicator/shape.h"
#include "transport/p2p.h"

namespace tutti::communicator {

/// A call without its buffers, and who launches it.
struct GpuCall {
  tutti_cuda_launch launch{};
  const tutti_protocol_ops* ops = nullptr;
  void* plugin = nullptr;
  bool copies = false;  ///< elements are moved, not combined: any type of their size does
};

/// One thread at a time.
class GpuPrograms {
 public:
  struct Options {
    uint32_t rank = 0;
    int device = 0;
    tutti_cuda_control* control = nullptr;  ///< as the GPU sees it
    uint64_t timeout_ns = 0;
  };
  /// `transports`: by protocol; those that no kernel runs are null.
  GpuPrograms(const Options& options, const tuner::Selector& selector, const Plans& plans,
              const std::vector<std::unique_ptr<transport::P2p>>& transports);

  /// The collective, ready but for its buffers and scalar.
  Result<GpuCall*> prepare(const Call& call);
  /// An empty launch of sends and receives with a protocol.
  GpuCall messages(uint32_t protocol) const;
  const tuner::Selector& selector() const { return selector_; }

 private:
  /// A collective's plan on this rank, lowered, for every channel.
  struct Program {
    std::vector<tutti_cuda_program> channels;  // one, where all are the same
    cuda::DeviceMemory on_device;              // where they are not
  };
  using Name = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, bool>;

  Result<const Program*> program(const tuner::Decision& decision, const Call& call, bool in_place);
  Result<std::vector<tutti_cuda_program>> lower(const tuner::Decision& decision, const Call& call, bool in_place) const;
  Result<std::unique_ptr<GpuCall>> make(const Call& call, bool in_place);
  GpuCall begin(uint32_t protocol, const transport::P2pLane& lane) const;

  Options options_;
  const tuner::Selector& selector_;
  const Plans& plans_;
  const std::vector<std::unique_ptr<transport::P2p>>& transports_;
  std::map<Name, std::unique_ptr<Program>> programs_;
  ByShape<GpuCall> kept_;
};

}  // namespace tutti::communicator
