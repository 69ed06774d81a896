// SPDX-License-Identifier: Apache-2.0
// Communicators: the calls applications make.
//
//   tutti::UniqueId id = ...;                        // made by one process with UniqueId::create(), passed to all
//   auto comm = tutti::Communicator::create(id, rank, rank_count);
//   if (!comm.ok()) return fail(comm.status());
//   tutti::Status status = comm->all_reduce(input, output, count, tutti::DataType::kFloat32, tutti::ReduceOp::kSum);
//
// Every rank makes the same calls in the same order with the same arguments (except its own buffers, and the factor of
// a pre-multiplied sum). Calls are numbered. If ranks disagree, calls fail with Code::kMismatch, and the text names the
// number, the ranks and their calls. On the host, no rank uses data of a rank whose calls differ. On GPUs a comparison
// in the background breaks the communicator within a second. If a rank leaves out one of several equal calls, no call
// can tell: the log names the different numbers of calls when a rank leaves.
//
// On the host device a call returns when this rank's part is done: its input may be reused and its output is complete.
// On GPUs (device: cuda) a communicator belongs to the GPU that is current in the thread that creates it, buffers are
// that GPU's memory, and a call enqueues its work on `stream` and returns; it may be captured into a CUDA graph. What
// goes wrong in a kernel is returned by async_error() and by the next call.
// Streams: the calls of one communicator run one after another, in the order in which they are made, on whatever
// streams they are; nothing else on these streams is ordered by that. What is captured into a graph is in order within
// it; between a graph's replays and other calls the application keeps the order, by a stream or an event. A stream
// may be destroyed when the work on it is through.
// Inside a group (group_start .. group_end) calls are collected and run by group_end.
//
// Threads: different communicators may be used from different threads at the same time. One communicator is used by one
// thread at a time, except abort() and async_error(), which any thread may call at any time.
//
// After a failure of a collective (a peer lost or gone, a time-out, an abort, a mismatch) the communicator is broken:
// every later call returns the first failure at once, and what remains is to destroy it. Errors of arguments break
// nothing.
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

/// The queue a device runs a call on (a cudaStream_t). The host device has none: pass nothing.
using Stream = void*;

/// A reduction with its scalar. Converts from ReduceOp; make a pre-multiplied sum with pre_mul_sum().
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  uint64_t scalar = 0;  ///< kPreMulSum: the bits of one element of the call's type, in the low bytes

  Reduction(ReduceOp operation) : op(operation) {}  // NOLINT(google-explicit-constructor)
  Reduction(ReduceOp operation, uint64_t factor) : op(operation), scalar(factor) {}
};

/// sum over ranks of (factor × that rank's input); `factor` is rounded to `type` (integers: truncated) and may differ
/// between ranks.
TUTTI_API Reduction pre_mul_sum(DataType type, double factor);

/// What runs a call.
struct Choice {
  std::string algorithm;  ///< "ring"
  std::string variant;    ///< "two-shot"; empty where the algorithm has one variant
  std::string protocol;   ///< "simple"
  std::string transport;  ///< "shm", "net-socket", or both joined by "+"
  uint32_t channels = 0;
  double predicted_us = 0;
};

/// How a communicator is made. Settings win over environment, job file and site file.
struct Options {
  std::string config_file;                                    ///< job file; empty: TUTTI_CONFIG or none
  std::vector<std::pair<std::string, std::string>> settings;  ///< "protocol" → "ll", ... as in --set
  std::string settings_origin = "application";                ///< how texts name the origin of `settings`
};

/// Buffers that all ranks registered together: Communicator::register_buffer. Ends with this object, for this rank
/// alone; that may wait for the GPU.
class TUTTI_API Registration {
 public:
  Registration() = default;  ///< of nothing
  /// For the communicator: `end` is called once.
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

  /// Whether every rank reaches the buffers of all others; the same on all ranks. If not, it makes no difference.
  bool direct() const { return direct_; }

 private:
  std::function<void()> end_;
  bool direct_ = false;
};

/// A communicator belongs to the process that made it. In a child that fork() made later, every call but rank() and
/// size() fails with kFailedPrecondition, abort() has no effect, and the destructor does nothing: the parent goes on
/// undisturbed. A child may make communicators of its own.
class TUTTI_API Communicator {
 public:
  /// Joins the ranks of `id`; returns when all `rank_count` ranks have joined and agree on version, plugins and
  /// configuration. Errors: kInvalidArgument (rank outside 0..rank_count-1), kConfig, kNotFound (plugin), kTimeout
  /// (names the missing ranks), kMismatch (names ranks and difference), kRemote.
  static Result<Communicator> create(const UniqueId& id, int rank, int rank_count, const Options& options = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Leaves and frees everything. Tells the other ranks at once which calls this rank has made: calls that need a
  /// further call of it fail with kRemote and its name. Calls that it has made end normally on ranks that are slower.
  /// Does not wait for the other ranks, except that data it has sent must go out: on GPUs its kernels end, and over a
  /// network the receivers take it, for `timeouts.operation` at most.
  ~Communicator();

  int rank() const;
  int size() const;

  /// Ranks with the same `color` form a new communicator, ordered by `key`, then by rank. color < 0: takes part in the
  /// call, joins none.
  Result<std::optional<Communicator>> split(int color, int key);

  // Collectives. `count` is in elements. In place means the buffers given per call; any other overlap is undefined.
  // Buffers may be null only where they are not read or written, or where count is 0. A count of 0 moves nothing, but
  // is a call like every other: all ranks make it.

  /// output[i] = op over ranks of input[i]; count elements each. In place: input == output.
  Status all_reduce(const void* input, void* output, size_t count, DataType type, Reduction op,
                    Stream stream = nullptr);
  /// Rank r gets block r of the reduction: input has size()·count elements, output count. In place: output == input +
  /// rank·count.
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
  /// Sends `count` elements to `peer`, which must receive as many. Sends and receives of one group progress together;
  /// what is in no group, collectives too, is in the same order on both ends.
  Status send(const void* input, size_t count, DataType type, int peer, Stream stream = nullptr);
  Status recv(void* output, size_t count, DataType type, int peer, Stream stream = nullptr);
  /// Returns when every rank has called it; on GPUs, when what every rank enqueued before on `stream` is done, too.
  Status barrier(Stream stream = nullptr);

  /// Lets calls store straight to the outputs of other ranks where these lie in registered buffers: on GPUs that reach
  /// each other, large all_gathers, all_to_alls, broadcasts and scatters then run by copy engines and take next to no
  /// thread blocks. Collective: every rank makes as many such calls in the same order, with the same `bytes` and a
  /// buffer of its own, which must not overlap one that is registered.
  /// What is registered is a promise for every later call: where the output of a call lies in a registered buffer on
  /// one rank, it does on all, in buffers that were registered together and at the same offset. (Not of gather and
  /// reduce, whose output is one rank's, nor of reduce_scatter; and a scatter on registered outputs is not in place.) A
  /// graph of such calls refers to the buffers for as long as it is replayed. End the registration when all calls and
  /// graphs that use the buffer are through on all ranks, before the buffer is freed; before or after the communicator;
  /// in the thread that uses it. After a failure of the communicator, other ranks may still store to the outputs of
  /// calls that did not end. On GPUs the buffer is this rank's GPU's. It succeeds and makes no difference
  /// (Registration::direct() is false, and the log says at info why) on the host device, between hosts, where GPUs do
  /// not reach each other, and for memory that CUDA does not share between processes: it must be of cudaMalloc, or of
  /// cuMemCreate with file descriptors. Errors, on all ranks alike: kInvalidArgument (null, 0 bytes, or different
  /// sizes; names ranks), kFailedPrecondition (overlaps a registered buffer), kTimeout, and those of the communicator.
  Result<Registration> register_buffer(void* buffer, size_t bytes);

  /// What every rank gave, by rank; lengths may differ. For small data, during setup: it goes through the rendezvous.
  Result<std::vector<std::vector<std::byte>>> exchange(std::span<const std::byte> mine);

  /// Breaks the communicator on every rank: calls in progress and later ones return kAborted with `reason`. Any thread.
  void abort(std::string_view reason = "aborted by the application");
  /// The failure that broke this communicator, or ok; looks what kernels have reported. Any thread.
  Status async_error() const;

  /// What would run this call, and what does when it is made: both ask the same selector. `registered`: with outputs in
  /// registered buffers that are reached directly.
  Result<Choice> choose(Collective collective, size_t count, DataType type, Reduction op,
                        bool registered = false) const;
  /// The verdict on every candidate for this call, one per line: chosen, slower by how much, or excluded by what.
  Result<std::string> explain(Collective collective, size_t count, DataType type, Reduction op,
                              bool registered = false) const;

  class State;  ///< the insides; not for applications

 private:
  explicit Communicator(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Collects the calls that this thread makes until the matching group_end. Groups nest; the outermost end runs
/// everything.
TUTTI_API Status group_start();
/// Runs the collected calls: sends and receives progress together, calls of different communicators at the same time.
/// These have no order among themselves, even on one stream, and ranks may make them in different orders.
/// On GPUs those of one communicator are like one call that was made on each of their streams: they come after what all
/// of these hold, and before what any is given next.
/// Returns the first failure.
TUTTI_API Status group_end();

}  // namespace tutti
