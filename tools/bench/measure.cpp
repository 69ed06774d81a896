// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tools/bench/batches.h"
#include "tools/bench/exchange.h"
#include "tools/check/random_input.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// As many calls as take this time, up to a limit.
struct Calls {
  double us;
  double most;
};
constexpr Calls kWarmUp{500'000, 200};
constexpr Calls kEstimate{5'000, 10'000};
constexpr double kShortestCallUs = 0.01;  // of a call after a barrier: noise can make the barriers alone slower
constexpr size_t kPageBytes = 4096;
constexpr size_t kSpoiledPlaces = 16;                // at least, in outputs of as many bytes
constexpr size_t kLargestStride = size_t{64} << 10;  // from place to place; a message may have 128 KiB

/// Page-aligned memory.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes))) {
    if (!memory_) throw std::bad_alloc();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// One call with its buffers, to be checked and repeated.
struct Subject {
  const check::Problem& problem;
  const check::Reference& reference;
  check::Call call;
  int rank;
  bool in_place;
  std::byte* buffer;  ///< all that the call may write
  size_t buffer_bytes;
  std::byte* input;
  std::byte* output;

  Status operator()(Communicator& communicator) const { return call(communicator, input, output); }
  size_t output_bytes() const { return check::output_elements(problem, rank) * size_of(problem.type); }
  Finding find() const {
    const bool same = check::same_everywhere(problem.collective);
    return {check::compare(problem, reference, rank, output), same ? check::hash(output, output_bytes()) : 0};
  }
  void prepare() const {
    check::poison(buffer, buffer_bytes);
    check::fill_input(problem, rank, 0, check::input_elements(problem, rank), input);
  }
  /// Spoils the output at some places, but not where the next call reads its input: a call that leaves out a message
  /// then shows. Few places, so that caches stay as they are.
  void spoil() const {
    const size_t bytes = output_bytes();
    const std::byte* const end = input + check::input_elements(problem, rank) * size_of(problem.type);
    const size_t stride = std::clamp<size_t>(bytes / kSpoiledPlaces, 1, kLargestStride);
    for (std::byte* place = output; place < output + bytes; place += stride) {
      if (place < input || place >= end) check::poison(place, 1);
    }
  }
};

class HostMeasurement : public Measurement {
 public:
  HostMeasurement(const Request& request, Communicator& communicator, const std::vector<check::Problem>& problems)
      : request_(request),
        communicator_(communicator),
        input_(largest_buffer(problems, communicator.rank())),
        output_(largest_buffer(problems, communicator.rank())) {}
  Result<Row> measure(const check::Problem& problem) override;
  Counters counters() const override { return communicator_.counters(); }

 private:
  Result<Timing> measure(const Subject& subject);
  Result<uint64_t> count_wrong(const Subject& subject);
  Result<uint64_t> count_not_zero(const Subject& subject);
  Status time(const Subject& subject, bool repeats, Timing& timing);
  /// Makes calls that do not count, and returns about how many µs a call takes.
  Result<double> warm_up(const Subject& subject);
  /// The slowest rank's time of one call, in a batch that starts at a barrier. With Request::barrier, of one barrier
  /// and one call.
  Result<double> time_batch(const Subject& subject, int calls);
  /// The slowest rank's time of one of so many barriers.
  Result<double> time_barriers(int barriers);

  const Request& request_;
  Communicator& communicator_;
  Buffer input_;
  Buffer output_;
};

Result<Row> HostMeasurement::measure(const check::Problem& problem) {
  Row row{problem, {}, std::nullopt, {}};
  const int rank = communicator_.rank();
  const size_t element_bytes = size_of(problem.type);
  const auto reference = request_.check ? check::Reference::for_rank(problem, rank) : check::Reference(problem, 0, 0);
  const check::Call call(problem, rank);
  const auto place = check::in_place(problem, rank);
  TUTTI_ASSIGN(row.ran, ran_by(communicator_, problem));
  if (request_.placement != Placement::kIn || !place) {
    const size_t bytes = check::output_elements(problem, rank) * element_bytes;
    TUTTI_ASSIGN(row.ours.out_of_place, measure({problem, reference, call, rank, false, output_.data(), bytes,
                                                 input_.data(), output_.data()}));
  }
  if (request_.placement != Placement::kOut && place) {
    TUTTI_ASSIGN(
        row.ours.in_place,
        measure({problem, reference, call, rank, true, output_.data(), place->elements * element_bytes,
                 output_.data() + place->input * element_bytes, output_.data() + place->output * element_bytes}));
  }
  return row;
}

Result<Timing> HostMeasurement::measure(const Subject& subject) {
  Timing timing;
  const bool repeats = !subject.in_place || repeats_in_place(subject.problem.collective);
  subject.prepare();
  if (request_.check) {
    TUTTI_TRY(subject(communicator_));
    TUTTI_ASSIGN(timing.wrong, count_wrong(subject));
  }
  // A reduction that is repeated in place would drift to infinities and slow subnormals; with zeros it stays zero.
  if (!repeats) std::memset(subject.buffer, 0, subject.buffer_bytes);
  TUTTI_TRY(time(subject, repeats, timing));
  return timing;
}

/// Counts the elements that are not zero: a repeated reduction in place runs on zeros.
Result<uint64_t> HostMeasurement::count_not_zero(const Subject& subject) {
  Finding finding;
  const size_t element = size_of(subject.problem.type);
  for (size_t i = 0; i < subject.buffer_bytes; i += element) {
    const bool zero = std::all_of(subject.buffer + i, subject.buffer + i + element,
                                  [](std::byte byte) { return byte == std::byte{0}; });
    if (zero) continue;
    if (finding.comparison.wrong++ == 0) finding.comparison.first = fmt::format("element {} is not 0", i / element);
  }
  return bench::count_wrong(communicator_, finding, to_string(subject.problem) + ", in place, of zeros");
}

Result<uint64_t> HostMeasurement::count_wrong(const Subject& subject) {
  return bench::count_wrong(communicator_, subject.find(),
                            to_string(subject.problem) + (subject.in_place ? ", in place" : ""));
}

/// The first call may connect, and further calls may be the first to use some of a connection's memory. The peers of
/// bench/host_vs_peers do the same.
Result<double> HostMeasurement::warm_up(const Subject& subject) {
  const bool given = request_.warmup || request_.iterations > 0;
  if (given) return time_batch(subject, request_.warmup.value_or(kFewWarmUpCalls));
  TUTTI_ASSIGN(double call_us, time_batch(subject, 1));
  TUTTI_ASSIGN(call_us, time_batch(subject, 1));
  for (const auto& [us, most] : {kWarmUp, kEstimate}) {
    if (call_us >= us) break;
    TUTTI_ASSIGN(call_us, time_batch(subject, static_cast<int>(std::clamp(us / call_us, 1.0, most))));
  }
  return call_us;
}

/// Checks the last call of every batch.
Status HostMeasurement::time(const Subject& subject, bool repeats, Timing& timing) {
  TUTTI_ASSIGN(const double estimate_us, warm_up(subject));
  const int calls = calls_of_batch(request_, estimate_us);
  std::vector<double> batches_us;
  int unclear = 0;  // batches in which the barriers alone took longer
  for (int batch = 0; batch < request_.batches; ++batch) {
    TUTTI_ASSIGN(double call_us, time_batch(subject, calls));
    if (request_.barrier) {
      TUTTI_ASSIGN(const double barrier_us, time_barriers(calls));
      if (call_us <= barrier_us) ++unclear;
      call_us = std::max(call_us - barrier_us, kShortestCallUs);
    }
    batches_us.push_back(call_us);
    if (!request_.check) continue;
    TUTTI_ASSIGN(const uint64_t wrong, repeats ? count_wrong(subject) : count_not_zero(subject));
    timing.wrong = std::max(timing.wrong, wrong);
  }
  summarize(batches_us, timing);
  if (unclear > 0 && communicator_.rank() == 0) {
    fmt::print(stderr,
               "tutti: {}: in {} of {} batches, the barriers alone took longer than barriers and calls; the time "
               "is too short to tell, raise --iters or --repeat\n",
               to_string(subject.problem), unclear, request_.batches);
  }
  return {};
}

Result<double> HostMeasurement::time_batch(const Subject& subject, int calls) {
  TUTTI_TRY(meet(communicator_));
  auto start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    if (request_.barrier) TUTTI_TRY(meet(communicator_));
    if (request_.check && i + 1 == calls) {
      const auto pause = Clock::now();
      subject.spoil();
      start += Clock::now() - pause;
    }
    TUTTI_TRY(subject(communicator_));
  }
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return largest(communicator_, elapsed.count() / calls);
}

Result<double> HostMeasurement::time_barriers(int barriers) {
  TUTTI_TRY(meet(communicator_));
  const auto start = Clock::now();
  for (int i = 0; i < barriers; ++i) TUTTI_TRY(meet(communicator_));
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return largest(communicator_, elapsed.count() / barriers);
}

}  // namespace

std::unique_ptr<Measurement> make_host_measurement(const Request& request, Communicator& communicator,
                                                   const std::vector<check::Problem>& problems) {
  return std::make_unique<HostMeasurement>(request, communicator, problems);
}

}  // namespace tutti::bench
