// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>

#include "tools/bench/exchange.h"
#include "tools/check/compare.h"
#include "tools/check/random_input.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPageBytes = 4096;
constexpr double kBatchUs = 20'000;
constexpr int kMaxIterations = 10'000;

size_t largest_buffer(const Request& request, int rank) {
  size_t bytes = 1;
  for (const check::Problem& problem : request.problems()) {
    const size_t elements = std::max(check::input_elements(problem, rank), check::output_elements(problem, rank));
    bytes = std::max({bytes, check::bytes_of(problem), elements * size_of(problem.type)});
  }
  return bytes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Whether an in-place call finds its input as it was when it is made again.
bool repeats_in_place(Collective collective) {
  return !check::reduces(collective);
}

}  // namespace

Buffer::Buffer(size_t bytes)
    : memory_(
          static_cast<std::byte*>(std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes))) {
  if (!memory_) throw std::bad_alloc();
}

struct Measurement::Subject {
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
  check::Comparison compare() const { return check::compare(problem, reference, rank, output); }
  void prepare() const {
    check::poison(buffer, buffer_bytes);
    check::fill_input(problem, rank, 0, check::input_elements(problem, rank), input);
  }
};

Measurement::Measurement(const Request& request, Communicator& communicator)
    : request_(request),
      communicator_(communicator),
      input_(largest_buffer(request, communicator.rank())),
      output_(largest_buffer(request, communicator.rank())) {}

Result<Row> Measurement::measure(const check::Problem& problem) {
  Row row{problem, std::nullopt, std::nullopt, {}};
  const int rank = communicator_.rank();
  const size_t element_bytes = size_of(problem.type);
  const auto reference = request_.check ? check::Reference::for_rank(problem, rank) : check::Reference(problem, 0, 0);
  const check::Call call(problem, rank);
  const auto place = check::in_place(problem, rank);
  const Collective chosen = problem.uneven ? Collective::kSendRecv : problem.collective;
  TUTTI_ASSIGN(row.choice, communicator_.choose(chosen, problem.count, problem.type, problem.op));
  if (request_.placement != Placement::kIn || !place) {
    const size_t bytes = check::output_elements(problem, rank) * element_bytes;
    TUTTI_ASSIGN(row.out_of_place, measure({problem, reference, call, rank, false, output_.data(), bytes, input_.data(),
                                            output_.data()}));
  }
  if (request_.placement != Placement::kOut && place) {
    TUTTI_ASSIGN(row.in_place, measure({problem, reference, call, rank, true, output_.data(),
                                        place->elements * element_bytes, output_.data() + place->input * element_bytes,
                                        output_.data() + place->output * element_bytes}));
  }
  return row;
}

Result<Timing> Measurement::measure(const Subject& subject) {
  Timing timing;
  const bool repeats = !subject.in_place || repeats_in_place(subject.problem.collective);
  subject.prepare();
  if (request_.check) {
    TUTTI_TRY(subject(communicator_));
    TUTTI_ASSIGN(timing.wrong, count_wrong(subject));
  }
  // A reduction repeated in place would drift to infinities and slow subnormals; of zeros it stays zero.
  if (!repeats) std::memset(subject.buffer, 0, subject.buffer_bytes);
  TUTTI_TRY(time(subject, timing));
  if (request_.check && repeats) {
    TUTTI_ASSIGN(const uint64_t wrong, count_wrong(subject));
    timing.wrong = std::max(timing.wrong, wrong);
  }
  return timing;
}

Result<uint64_t> Measurement::count_wrong(const Subject& subject) {
  struct Finding {
    uint64_t wrong;
    uint64_t hash;
  };
  const check::Comparison comparison = subject.compare();
  if (comparison.wrong > 0) {
    fmt::print(stderr, "tutti: rank {}: {}{}: {} wrong, the first: {}\n", subject.rank, to_string(subject.problem),
               subject.in_place ? ", in place" : "", comparison.wrong, comparison.first);
  }
  const bool same = check::same_everywhere(subject.problem.collective);
  const Finding own{comparison.wrong, same ? check::hash(subject.output, subject.output_bytes()) : 0};
  TUTTI_ASSIGN(const auto findings, exchange(communicator_, own));
  if (own.hash != findings.front().hash) {
    fmt::print(stderr, "tutti: rank {}: {}: bits differ from those of rank 0\n", subject.rank,
               to_string(subject.problem));
  }
  return std::accumulate(findings.begin(), findings.end(), uint64_t{0}, [&](uint64_t sum, const Finding& finding) {
    return sum + finding.wrong + (finding.hash != findings.front().hash ? 1 : 0);
  });
}

Status Measurement::time(const Subject& subject, Timing& timing) {
  TUTTI_ASSIGN(const double estimate_us, time_batch(subject, request_.warmup));
  const double fitting = std::clamp(kBatchUs / std::max(estimate_us, 0.01), 1.0, double{kMaxIterations});
  const int iterations = request_.iterations > 0 ? request_.iterations : static_cast<int>(fitting);
  std::vector<double> batches_us;
  for (int batch = 0; batch < request_.batches; ++batch) {
    TUTTI_ASSIGN(const double batch_us, time_batch(subject, iterations));
    batches_us.push_back(batch_us);
  }
  timing.time_us = median(batches_us);
  timing.min_us = *std::min_element(batches_us.begin(), batches_us.end());
  return {};
}

Result<double> Measurement::time_batch(const Subject& subject, int calls) {
  TUTTI_TRY(meet(communicator_));
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) TUTTI_TRY(subject(communicator_));
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  TUTTI_ASSIGN(const auto times_us, exchange(communicator_, elapsed.count() / calls));
  return *std::max_element(times_us.begin(), times_us.end());
}

}  // namespace tutti::bench
