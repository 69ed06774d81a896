// SPDX-License-Identifier: Apache-2.0
// Communicators: the calls of applications.
//
//   tutti::UniqueId id = ...;                        // made by one process with UniqueId::create(), passed to all
//   auto comm = tutti::Communicator::create(id, rank, rank_count);
//   if (!comm.ok()) return fail(comm.status());
//   tutti::Status status = comm->all_reduce(input, output, count, tutti::DataType::kFloat32, tutti::ReduceOp::kSum);
//
// Order. Every rank makes the same calls in the same order with the same arguments. Only its own buffers, and the
// factor of a pre-multiplied sum, may differ. Calls are numbered. If ranks disagree, calls fail with Code::kMismatch,
// and the text names the number, the ranks and their calls. On the host, no rank uses data of a rank whose calls
// differ. On GPUs, a comparison in the background breaks the communicator, usually within a second. If a rank leaves
// out one of several equal calls, no call can tell: the log names the different numbers of calls when a rank leaves.
//
// Return. On the host device, a call returns when this rank's part is done: its input may be reused and its output is
// complete. On GPUs (device: cuda), a communicator belongs to the GPU that is current in the thread that creates it.
// Buffers are memory of this GPU. A call enqueues its work on `stream` and returns. It may be captured into a CUDA
// graph. async_error() and the next call return failures of a kernel.
//
// Streams. The calls of one communicator run one after another, in the order in which they are made, also on different
// streams. They do not order further work on these streams. Calls that are captured into a graph are ordered within the
// graph. The application keeps the order between replays of a graph and further calls, by a stream or an event. A
// stream may be destroyed when its work is complete.
//
// Groups. Between group_start() and group_end(), calls are collected. group_end() runs them.
//
// Threads. Different communicators may be used from different threads at the same time. One communicator is used by one
// thread at a time. Only abort(), async_error() and counters() may be called by any thread at any time.
//
// Errors. After a failure of a collective (a lost peer, a peer that left, a time-out, an abort, a mismatch), the
// communicator is broken. Every later call returns the first failure at once, and the application can only destroy the
// communicator, or shrink it. Errors of arguments break nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/status.h"
#include "tutti/types.h"
#include "tutti/unique_id.h"

namespace tutti {

/// sum over ranks of (factor × that rank's input); `factor` is rounded to `type` (integers: truncated) and may differ
/// between ranks.
TUTTI_API Reduction pre_mul_sum(DataType type, double factor);

/// The algorithm, protocol, transport and channels of a call.
struct Choice {
  std::string algorithm;  ///< "ring"
  std::string variant;    ///< "two-shot"; empty if the algorithm has one variant
  std::string protocol;   ///< "simple"
  std::string transport;  ///< "shm", "p2p" and "net-NAME" of each network in use, joined by "+"
  uint32_t channels = 0;
  double predicted_us = 0;
};

/// Counts events of a communicator since its creation, on this rank.
struct Counters {
  uint64_t failovers =
      0;  ///< how often a connection on which this rank sends went on by a different way (net.failover)
  uint64_t resent_messages = 0;  ///< messages of the network that this rank sent again after a fail-over
};

/// The configuration of a communicator. Settings win over environment, job file and site file.
struct Options {
  std::string config_file;                                    ///< job file; empty: TUTTI_CONFIG or none
  std::vector<std::pair<std::string, std::string>> settings;  ///< "protocol" → "ll", ... as in --set
  std::string settings_origin = "application";                ///< how texts name the origin of `settings`
};

/// What a shrink does to the communicator that it shrinks.
enum class ShrinkMode {
  kKeep,  ///< nothing: the calls of all ranks that remain have ended. A whole communicator stays usable
  /// Breaks it on all ranks, as Communicator::abort(): their calls, and kernels that wait for a lost rank, end.
  kAbort,
};

/// A registration of buffers that all ranks registered together (Communicator::register_buffer). The destructor ends
/// the registration, for this rank only, and may wait for the GPU.
class TUTTI_API Registration {
 public:
  Registration() = default;  ///< registers nothing
  /// For the communicator. The destructor calls `end` once.
  Registration(std::function<void()> end, bool direct) : end_(std::move(end)), direct_(direct) {}
  Registration(Registration&& other) noexcept
      : end_(std::exchange(other.end_, nullptr)), direct_(std::exchange(other.direct_, false)) {}
  Registration& operator=(Registration&& other) noexcept {
    Registration taken(std::move(other));
    std::swap(end_, taken.end_);
    std::swap(direct_, taken.direct_);
    return *this;
  }
  ~Registration() {
    if (end_) end_();
  }

  /// Whether every rank can store to the buffers of all ranks; equal on all ranks. If not, the registration has no
  /// effect.
  bool direct() const { return direct_; }

 private:
  std::function<void()> end_;
  bool direct_ = false;
};

/// A communicator belongs to the process that made it. In a child that fork() made later, every call but rank(), size()
/// and counters() fails with kFailedPrecondition, abort() has no effect, and the destructor does nothing: the parent
/// goes on undisturbed. A child may make communicators of its own.
class TUTTI_API Communicator {
 public:
  /// Joins the ranks of `id`. Returns when all `rank_count` ranks have joined and agree on version, plugins and
  /// configuration. Errors: kInvalidArgument (rank outside 0..rank_count-1), kConfig, kNotFound (plugin), kTimeout
  /// (names the missing ranks), kMismatch (names ranks and difference), kVersionMismatch (of a plugin or of Tutti),
  /// kUnsupported (no network works on all ranks; too many ranks), kSystem, kRemote.
  static Result<Communicator> create(const UniqueId& id, int rank, int rank_count, const Options& options = {});

  /// Joins the ranks of the job that a launcher started this process in: Open MPI's mpirun, Slurm's srun, torchrun, or
  /// a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. docs/deploy.md lists the variables. A process
  /// that no launcher started is the only rank of a job of its own. Collective; once per process, more communicators
  /// come from split(). Errors: as create(), kInvalidArgument (variables that contradict each other), kUnsupported (the
  /// launcher states no place where ranks can meet), kFailedPrecondition (a second call).
  static Result<Communicator> from_environment(const Options& options = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Leaves the communicator and frees its memory. Tells all ranks at once which calls this rank has made. Calls that
  /// need a further call of this rank fail with kRemote and its name. Calls that this rank has made end normally on
  /// slower ranks. The destructor does not wait for ranks, except that sent data must go out. On GPUs its kernels end.
  /// Over a network the receivers take the data, for `timeouts.operation` at most.
  ~Communicator();

  int rank() const;
  int size() const;

  /// Makes a new communicator of the ranks with the same `color`, ordered by `key`, then by rank. A rank with color < 0
  /// takes part in the call and joins no communicator. Collective. Errors: those of create(), and the failure of this
  /// communicator if it is broken.
  /// `options`: the configuration of the new communicator. Without options, it is the configuration of this one.
  Result<std::optional<Communicator>> split(int color, int key, const std::optional<Options>& options = std::nullopt);

  /// Makes a new communicator of all ranks but `excluded`, in their order. `excluded` names ranks of this communicator,
  /// in any order. Only the ranks that remain call it, all with the same list. An empty list makes a communicator of
  /// the same ranks. The call also works if excluded ranks were lost, and if this communicator is broken. Returns when
  /// all ranks that remain have joined. `options`: as for split().
  ///
  /// The new communicator is independent of this one. Several shrinks of one communicator may follow each other, also
  /// after a shrink that failed. A rank that was excluded once cannot take part in a later shrink with these ranks.
  ///
  /// Errors: those of create(); kInvalidArgument (a rank out of range, or the caller itself), kMismatch (the lists
  /// differ; names ranks and lists), kTimeout (a rank that remains did not call within `timeouts.bootstrap`),
  /// kFailedPrecondition (`bootstrap.shrink` is false, or too many shrinks failed).
  Result<Communicator> shrink(std::span<const int> excluded, ShrinkMode mode = ShrinkMode::kKeep,
                              const std::optional<Options>& options = std::nullopt);

  // Collectives. `count` is in elements. "In place" names the permitted overlap of the buffers; every different overlap
  // is undefined. A buffer may be null only if it is neither read nor written, or if count is 0. A count of 0 moves no
  // data, but it is a call: all ranks must make it.
  //
  // Errors of all calls below: kInvalidArgument (null buffer, root or peer out of range, type without this reduction),
  // kUnsupported (a stream on the host device; no candidate can run the call; the text names the reasons), and the
  // failure that broke the communicator (kRemote, kTimeout, kAborted, kMismatch).

  /// output[i] = op over ranks of input[i]; count elements each. In place: input == output.
  Status all_reduce(const void* input, void* output, size_t count, DataType type, Reduction op,
                    Stream stream = nullptr);
  /// Rank r gets block r of the reduction. The input has size()·count elements, the output count. In place: output ==
  /// input + rank·count.
  Status reduce_scatter(const void* input, void* output, size_t count, DataType type, Reduction op,
                        Stream stream = nullptr);
  /// output block r = rank r's input: input has count elements, output size()·count. In place: input == output +
  /// rank·count.
  Status all_gather(const void* input, void* output, size_t count, DataType type, Stream stream = nullptr);
  /// output = root's input, on every rank. `input` is read on root only. In place: input == output on root.
  Status broadcast(const void* input, void* output, size_t count, DataType type, int root, Stream stream = nullptr);
  /// output on root = op over ranks of input. `output` is written on root only. In place: input == output on root.
  Status reduce(const void* input, void* output, size_t count, DataType type, Reduction op, int root,
                Stream stream = nullptr);
  /// Block r of the input goes to rank r, block r of the output came from rank r: size()·count elements each. Not in
  /// place.
  Status all_to_all(const void* input, void* output, size_t count, DataType type, Stream stream = nullptr);
  /// As all_to_all with a count and an offset (in elements) per peer; recv_counts[p] here equals send_counts[rank()] on
  /// p. Not in place.
  Status all_to_all_v(const void* input, std::span<const size_t> send_counts, std::span<const size_t> send_offsets,
                      void* output, std::span<const size_t> recv_counts, std::span<const size_t> recv_offsets,
                      DataType type, Stream stream = nullptr);
  /// output block r on root = rank r's input. `output` is written on root only. In place on root: input == output +
  /// root·count.
  Status gather(const void* input, void* output, size_t count, DataType type, int root, Stream stream = nullptr);
  /// output = block rank() of root's input. `input` is read on root only. In place on root: output == input +
  /// root·count.
  Status scatter(const void* input, void* output, size_t count, DataType type, int root, Stream stream = nullptr);
  /// Sends `count` elements to `peer`, which must receive the same number. Sends and receives of one group progress
  /// together. Calls outside of groups, also collectives, must have the same order on both ends.
  Status send(const void* input, size_t count, DataType type, int peer, Stream stream = nullptr);
  Status recv(void* output, size_t count, DataType type, int peer, Stream stream = nullptr);
  /// Returns when every rank has called it. On GPUs, the earlier work of all ranks on their `stream` is also complete
  /// then.
  Status barrier(Stream stream = nullptr);

  /// Registers a buffer for direct stores by all ranks. Collective: every rank makes the same number of registrations
  /// in the same order, with the same `bytes` and a buffer of its own. The buffer must not overlap a registered buffer.
  /// On GPUs, it is memory of this rank's GPU.
  ///
  /// Effect. If outputs lie in registered buffers, calls may store straight to the outputs of all ranks. On GPUs that
  /// reach each other, large all_gathers, all_to_alls, broadcasts and scatters run by copy engines and take almost no
  /// thread blocks.
  ///
  /// Duties. If one rank's output of a call lies in a registered buffer, all ranks' outputs must lie in buffers that
  /// were registered together, at equal offsets. This does not hold for gather and reduce, whose output is on one rank,
  /// or for reduce_scatter. A scatter on registered outputs is not in place. A graph of calls refers to the buffers for
  /// as long as it is replayed. End the registration after all calls and graphs that use the buffer have completed on
  /// all ranks, and before the buffer is freed. It may end before or after the communicator. End it in the thread that
  /// uses the communicator. After a failure of the communicator, ranks may still store to the outputs of calls that did
  /// not end.
  ///
  /// No effect. The call succeeds without an effect (Registration::direct() is false, and the log gives the reason at
  /// info) on the host device, between hosts, and if GPUs do not reach each other. It also has no effect for memory
  /// that CUDA does not share between processes: the memory must come from cudaMalloc, or from cuMemCreate with file
  /// descriptors.
  ///
  /// Errors, equal on all ranks: kInvalidArgument (null, 0 bytes, or different sizes; names ranks), kFailedPrecondition
  /// (overlaps a registered buffer), kTimeout, and the failure of the communicator.
  Result<Registration> register_buffer(void* buffer, size_t bytes);

  /// Gives the bytes of each rank to all ranks; the result is ordered by rank. Lengths may differ. For small data
  /// during setup: it passes through the rendezvous. Collective. Errors: kTimeout, and the failure of the communicator.
  Result<std::vector<std::vector<std::byte>>> exchange(std::span<const std::byte> mine);

  /// Breaks the communicator on every rank: current and later calls return kAborted with `reason`. Any thread.
  void abort(std::string_view reason = "aborted by the application");
  /// The failure that broke this communicator, or ok. Also reports failures of kernels. Any thread.
  Status async_error() const;

  /// The choice for this call. The call itself asks the same selector. `registered`: the outputs lie in registered
  /// buffers with Registration::direct().
  Result<Choice> choose(Collective collective, size_t count, DataType type, Reduction op,
                        bool registered = false) const;
  /// The verdict on every candidate for this call, one per line: chosen, slower by a factor, or excluded for a reason.
  /// Further lines name the fail-overs of this rank's connections, if there were any.
  Result<std::string> explain(Collective collective, size_t count, DataType type, Reduction op,
                              bool registered = false) const;
  /// The counters of this rank. Any thread.
  Counters counters() const;

  class State;  ///< the implementation; not for applications

 private:
  explicit Communicator(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Collects the calls that this thread makes until the matching group_end. Groups nest; the outermost end runs
/// everything.
TUTTI_API Status group_start();
/// Runs the collected calls: sends and receives progress together, calls of different communicators at the same time.
/// Calls of different communicators have no order, even on one stream, and ranks may make them in different orders. On
/// GPUs, the calls of one communicator count as one call on each of their streams. They run after the earlier work of
/// all these streams, and before the later work. Returns the first failure.
TUTTI_API Status group_end();

}  // namespace tutti
