// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backend/registrations.h"
#include "tools/bench/exchange.h"

namespace tutti::bench {
namespace {

constexpr int kMaxIterations = 10'000;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

size_t largest_buffer(const std::vector<check::Problem>& problems, int rank) {
  size_t bytes = 1;
  for (const check::Problem& problem : problems) {
    const size_t elements = std::max(check::input_elements(problem, rank), check::output_elements(problem, rank));
    bytes = std::max({bytes, check::bytes_of(problem), elements * size_of(problem.type)});
  }
  return bytes;
}

bool repeats_in_place(Collective collective) {
  return !check::reduces(collective);
}

int calls_of_batch(const Request& request, double estimate_us) {
  const double fitting = std::clamp(request.batch_us / std::max(estimate_us, 0.01), 1.0, double{kMaxIterations});
  return request.iterations > 0 ? request.iterations : static_cast<int>(fitting);
}

void summarize(const std::vector<double>& batches_us, Timing& timing) {
  timing.time_us = median(batches_us);
  timing.min_us = *std::min_element(batches_us.begin(), batches_us.end());
}

Result<Ran> ran_by(const Communicator& communicator, const check::Problem& problem, bool registered) {
  const Collective chosen = problem.uneven ? Collective::kSendRecv : problem.collective;
  TUTTI_ASSIGN(const Choice choice, communicator.choose(chosen, problem.count, problem.type, problem.op,
                                                        registered && backend::has_registrable_output(chosen)));
  return Ran{fmt::format("{}{}{}/{}/{} ×{}", choice.algorithm, choice.variant.empty() ? "" : "/", choice.variant,
                         choice.protocol, choice.transport, choice.channels),
             choice.predicted_us, choice.channels};
}

Result<uint64_t> count_wrong(Communicator& control, const Finding& finding, const std::string& what) {
  struct Told {
    uint64_t wrong;
    uint64_t hash;
  };
  const check::Comparison& comparison = finding.comparison;
  if (comparison.wrong > 0) {
    fmt::print(stderr, "tutti: rank {}: {}: {} wrong, the first: {}\n", control.rank(), what, comparison.wrong,
               comparison.first);
  }
  TUTTI_ASSIGN(const auto all, exchange(control, Told{comparison.wrong, finding.hash}));
  if (finding.hash != all.front().hash) {
    fmt::print(stderr, "tutti: rank {}: {}: bits differ from those of rank 0\n", control.rank(), what);
  }
  return std::accumulate(all.begin(), all.end(), uint64_t{0}, [&](uint64_t sum, const Told& told) {
    return sum + told.wrong + (told.hash != all.front().hash ? 1 : 0);
  });
}

}  // namespace tutti::bench
