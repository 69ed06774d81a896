// SPDX-License-Identifier: Apache-2.0
// The GPU of a rank: runs its calls as kernels, over memory that the other ranks' GPUs store to.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/call.h"
#include "backend/cuda/kernel_waits.h"
#include "backend/host/fabric.h"
#include "backend/plans.h"
#include "base/clock.h"
#include "bootstrap/bootstrap.h"

namespace tutti::backend {

/// Setup and calls by one thread at a time; stop() and fault() by any.
class Gpu {
 public:
  enum class Use { kAuto, kOn, kOff };
  /// The value of net.direct or net.pxn: "auto", "on" or "off".
  static Use use_of(std::string_view text) { return text == "on" ? Use::kOn : text == "off" ? Use::kOff : Use::kAuto; }
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    uint32_t max_channels = 1;           ///< CTAs of a collective at most
    uint32_t slots = 0;                  ///< slots of a connection; 0: the protocol's choice
    uint64_t slot_bytes = 0;             ///< payload of a slot; 0: the protocol's choice
    bool staged = false;                 ///< go through memory of the host, even where GPUs reach each other
    std::vector<uint32_t> local_ranks;   ///< ranks of this rank's host, with this rank
    const Fabric* fabric = nullptr;      ///< has the networks to ranks of other hosts; outlives the Gpu
    uint32_t call_networks = 1;          ///< so many networks of the fabric, the first ones, may be networks of calls
    std::chrono::nanoseconds timeout{};  ///< limit of one wait in a kernel
    Use direct = Use::kAuto;             ///< whether networks move memory of the GPU
    Use pxn = Use::kAuto;                ///< whether a second GPU lends memory for messages by a port near the GPU
  };
  /// Binds to the calling thread's GPU and finds the GPUs of all ranks; all ranks call it. kUnsupported in builds
  /// without CUDA, or for more ranks than a kernel supports.
  static Result<std::unique_ptr<Gpu>> create(const Options& options, const std::vector<tuner::Protocol>& protocols,
                                             bootstrap::Bootstrap& bootstrap, base::Time deadline);
  virtual ~Gpu() = default;

  /// The PCI address of the calling thread's GPU: "0000:18:00.0"; empty in builds without CUDA.
  static Result<std::string> current_address();

  /// CUDA's number of this GPU.
  virtual int device() const = 0;
  /// The kind of link between GPUs of one host, equal on all ranks: TUTTI_LINK_P2P, or TUTTI_LINK_SHM if some GPU does
  /// not reach some GPU of its host. Connections between GPUs that reach each other are made in GPU memory in both
  /// cases.
  virtual uint32_t link() const = 0;
  /// PCI addresses of all ranks' GPUs, by rank: "0000:18:00.0".
  virtual std::vector<std::string> addresses() const = 0;
  /// By protocol: CTAs of a launch with strands, at most. The GPU of each rank holds so many at the same time, so the
  /// strands may wait for each other. Equal on all ranks; 0 for protocols without strands.
  virtual std::vector<uint32_t> strand_ctas() const = 0;
  /// Name of the model: "NVIDIA H200"; "NVIDIA H200 / 2" if two ranks share a GPU. Equal on all ranks of one machine.
  virtual std::string name() const = 0;

  /// As Backend::set_detours.
  virtual Status set_detours(std::span<const Detour> detours) = 0;
  /// Must be called once, before the first call.
  virtual Status serve(const tuner::Selector& selector, const Plans& plans) = 0;
  /// Collective over all ranks, after their claims were found to fit (registrations.h). Returns the registration's
  /// number; nothing, on all ranks, if the registration has no effect.
  virtual Result<std::optional<uint64_t>> register_buffer(void* buffer, uint64_t bytes, base::Time deadline) = 0;
  /// Ends the registration on this rank only. The buffers are unused from now on.
  virtual void end_registration(uint64_t number) = 0;

  /// Enqueue a collective, or sends and receives that progress together, on the first call's stream, after all earlier
  /// calls, on any stream.
  virtual Status run(const Call& call) = 0;
  virtual Status run_messages(std::span<const Call> calls) = 0;
  /// As Backend::common_stream. Makes a stream at its first use, unless the process has several ranks, each on a GPU of
  /// its own.
  virtual Result<Stream> common_stream(Stream stream) = 0;
  /// To be called before and after a group whose calls were given to these streams, and all go to the first:
  /// stream_order.h.
  virtual Status gather(std::span<const Stream> streams) = 0;
  virtual Status release(std::span<const Stream> streams) = 0;
  /// Returns when the earlier kernels of all ranks on this stream have ended.
  virtual Status barrier(Stream stream) = 0;

  /// Returns when this rank's calls have completed or were ended.
  virtual Status finish() = 0;

  /// Ends all waits of kernels, now and later.
  virtual void stop() = 0;
  /// The reason why a kernel gave up by itself; ok: none did.
  virtual Status fault() const = 0;
  /// Words that kernels store during long waits. Any thread.
  virtual KernelWaits::Sample kernel_waits() const = 0;
};

}  // namespace tutti::backend
