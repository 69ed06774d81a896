// SPDX-License-Identifier: Apache-2.0
// The interface of back ends. A back end runs the calls of one communicator on one kind of device.
//
// The communicator checks arguments, holds the first failure and meets the other ranks. The back end has the
// connections and the device. It counts each call in the ledger before other ranks can take part in it. Calls of no
// elements are counted by the communicator.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/call.h"
#include "backend/ledger.h"
#include "backend/plans.h"
#include "base/clock.h"
#include "tuner/selector.h"

namespace tutti::backend {

/// The device on which a back end computes.
struct Device {
  int number = -1;                     ///< CUDA's number; -1: the host
  std::string name;                    ///< the model; equal on all ranks of one machine
  uint32_t link = TUTTI_LINK_SHM;      ///< the kind of link between devices of one host, equal on all ranks
  std::vector<std::string> addresses;  ///< PCI addresses of all ranks' devices, by rank; empty: none
  std::vector<uint32_t> strand_ctas;   ///< tuner::Protocol::strand_ctas, by protocol; empty: as it is
};

/// A port of the first network that a rank's GPU reaches over NVLink and a second GPU of its host (PXN).
struct Detour {
  uint32_t port = 0;  ///< device of the network plugin
  std::string gpu;    ///< PCI address of the second GPU
};

/// Setup and calls by one thread at a time. The communicator calls stop(), on_departure() and observe() on any thread,
/// under a lock: they call no function of the communicator. fault() by any thread.
class Backend {
 public:
  using Phase = History::Phase;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const Device& device() const { return device_; }
  /// The phase of a call that has returned: kDone, or kEnqueued if it may still run.
  Phase end_phase() const { return end_phase_; }

  /// The paths of this rank to network ports that lead through a second GPU. At most once, before serve(). Errors: a
  /// setting demands a path that the devices do not offer.
  virtual Status set_detours(std::span<const Detour> /*detours*/) { return {}; }
  /// Must be called once, before the first call. Both objects must outlive the back end.
  virtual Status serve(const tuner::Selector& selector, const Plans& plans) = 0;

  /// Runs or enqueues a collective, or sends and receives that progress together. The arguments are right.
  virtual Status run(const Call& call) = 0;
  virtual Status run_messages(std::span<const Call> calls) = 0;
  /// Returns when the earlier calls of all ranks on the stream of `call` have ended. `call` is an all_reduce of one
  /// byte in memory of the host.
  virtual Status barrier(const Call& call) = 0;
  /// A stream that means the same in every thread, in place of `stream`, which may mean a different stream in each.
  virtual Result<Stream> common_stream(Stream stream) { return stream; }
  /// To be called before and after the calls of a group that were given to these streams, and all go to the first.
  virtual Status gather(std::span<const Stream> streams) = 0;
  virtual Status release(std::span<const Stream> streams) = 0;

  /// Collective over all ranks, after their claims were found to fit (registrations.h). Returns the registration's
  /// number; nothing, on all ranks, if the registration has no effect.
  virtual Result<std::optional<uint64_t>> register_buffer(void* buffer, uint64_t bytes, base::Time deadline) = 0;
  /// Ends the registration on this rank only. The buffers are unused from now on.
  virtual void end_registration(uint64_t number) = 0;

  /// Ends all waits of calls, now and later. The abort word is set before.
  virtual void stop() = 0;
  /// A rank left: waits look whether it is missing. Returns its absence from a call that has returned, and that no
  /// later call finds.
  virtual std::optional<Absence> on_departure() = 0;
  /// The reason why the device gave up by itself; ok: it did not.
  virtual Status fault() const = 0;
  /// Shows a long wait of the device in the ledger. Called regularly, by one thread.
  virtual void observe() = 0;
  /// Returns true when this rank's calls have ended and its data has left the process, or `failed()`; false if data was
  /// still there after `limit`.
  virtual bool flush(std::chrono::nanoseconds limit, const std::function<bool()>& failed) = 0;
  /// "network 'socket', from rank 0 (...) to rank 1 (...): connected; ...": the connections with a rank, or all of
  /// them; empty: none. Any thread.
  virtual std::string connections(std::optional<uint32_t> /*peer*/) const { return {}; }

 protected:
  Backend(Device device, Phase end_phase) : device_(std::move(device)), end_phase_(end_phase) {}

 private:
  const Device device_;
  const Phase end_phase_;
};

struct Parts;  ///< factory.h
using Factory = std::function<Result<std::unique_ptr<Backend>>(Parts& parts)>;
/// Makes the back end that the parts ask for, together with all ranks.
Result<std::unique_ptr<Backend>> make_backend(Parts& parts);

}  // namespace tutti::backend
