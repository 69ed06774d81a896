// SPDX-License-Identifier: Apache-2.0
// Measures one or two libraries on CUDA devices. Times are times of the device, between two events on one stream.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/bench/batches.h"
#include "tools/bench/cuda/device.h"
#include "tools/bench/cuda/trial.h"
#include "tools/bench/exchange.h"
#include "tools/bench/library.h"
#include "tools/check/random_input.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;
using cuda::status_of;

constexpr double kGraphUs = 20'000;  ///< time of the calls in one graph, at most
constexpr int kGraphCalls = 20;      ///< in one graph, at most
constexpr int kQueuedCalls = 400;    ///< whose enqueueing is timed: with more, enqueueing waits for the device
constexpr auto kPatience = std::chrono::minutes(5);
constexpr auto kPollPause = std::chrono::microseconds(20);  ///< the time is taken by the device, not by the poll

struct Contender {
  std::unique_ptr<Library> library;
  LibraryFacts facts;
  std::byte* input;
  std::byte* output;
};

/// The buffers of a call.
struct CallBuffers {
  bool in_place;
  std::byte* buffer;  ///< all that the call may write
  size_t buffer_bytes;
  std::byte* input;
  std::byte* output;
};

/// The work of one library in a batch.
struct Subject {
  Contender& contender;
  CallBuffers buffers;
  int calls;                    ///< calls of a group
  cuda::Graph graph = nullptr;  ///< null: groups are enqueued one by one
  int groups = 1;               ///< in the graph
  int launches = 1;             ///< launches of the graph, or of a group
  std::vector<double> batches_us = {};
  Timing timing = {};
};

class CudaMeasurement : public Measurement {
 public:
  CudaMeasurement(const Request& request, Communicator& control, const std::vector<check::Problem>& problems)
      : request_(request), control_(control), problems_(problems) {}

  /// Allocates the resources of the measurements; the libraries join their ranks.
  Status open();
  Result<Row> measure(const check::Problem& problem) override;
  std::vector<LibraryFacts> libraries() const override;
  std::string device() const override { return device_; }
  Counters counters() const override { return contenders_.front().library->counters(); }
  void abort(std::string_view reason) override {
    for (const Contender& contender : contenders_) contender.library->abort(reason);
  }

 private:
  Status join(const std::string& path);
  /// A communicator of the library, after its first calls, and its cost without buffers.
  Result<Contender> join(const std::string& path, Cost& cost);
  Status give_buffers(Contender& contender);
  /// Calls of the smallest and the largest problem, which take the memory that later calls find.
  Status call_first(const Contender& contender);
  /// Calls that cannot be in place are measured out of place, with every request.
  bool wanted(bool in_place, bool can_be_in_place) const {
    if (in_place) return can_be_in_place && request_.placement != Placement::kOut;
    return !can_be_in_place || request_.placement != Placement::kIn;
  }
  CallBuffers buffers_for(const check::Problem& problem, bool in_place, const Contender& contender) const;
  Result<std::vector<Timing>> measure(const cuda::Trial& trial, bool in_place, const check::Problem& problem);
  /// Everything before the timed batches: the first check, the number of calls, the graph.
  Status begin(Subject& subject, const cuda::Trial& trial, const check::Problem& problem);
  Status prepare(const CallBuffers& buffers, const cuda::Trial& trial);
  Status check(Subject& subject, const cuda::Trial& trial, const check::Problem& problem);
  Status capture(Subject& subject, int groups);
  /// One launch of the graph, or one group.
  Status enqueue(const Subject& subject);
  Status enqueue_group(const Subject& subject);
  /// The slowest rank's time of one call, in a batch before which ranks and devices meet.
  Result<double> time_batch(const Subject& subject, int launches);
  /// The slowest rank's median time of the CPU to enqueue one call.
  Result<double> time_enqueueing(const Subject& subject);
  Status record(CUevent_st* event) { return status_of(cudaEventRecord(event, queue_.get()), "cannot record an event"); }
  /// Waits until the queue has completed its work.
  Status finish(const Library& library);

  const Request& request_;
  Communicator& control_;
  std::vector<check::Problem> problems_;
  std::string device_;
  cuda::Queue queue_;
  cuda::Event start_;
  cuda::Event end_;
  cuda::Memory input_;
  cuda::Memory output_;
  std::vector<Contender> contenders_;  ///< ours, theirs; the last member, because they leave before memory is freed
};

Status CudaMeasurement::open() {
  const auto& launched = request_.session.assignment;
  const bool has_local_rank = launched && launched->local_rank >= 0;
  TUTTI_ASSIGN(device_, cuda::select_device(has_local_rank ? launched->local_rank : control_.rank()));
  TUTTI_ASSIGN(queue_, cuda::make_queue());
  TUTTI_ASSIGN(start_, cuda::make_event());
  TUTTI_ASSIGN(end_, cuda::make_event());
  const size_t bytes = largest_buffer(problems_, control_.rank());
  TUTTI_ASSIGN(input_, cuda::allocate(bytes));
  TUTTI_ASSIGN(output_, cuda::allocate(bytes));
  TUTTI_TRY(join(request_.library));
  if (!request_.compare.empty()) TUTTI_TRY(join(request_.compare));
  return {};
}

Status CudaMeasurement::join(const std::string& path) {
  Cost cost;
  TUTTI_ASSIGN(Contender contender, join(path, cost));
  contender.facts.first = cost;
  if (request_.verbose) {
    // Leaves again at once.
    TUTTI_ASSIGN(const auto further, join(path, cost));
    contender.facts.further = cost;
  }
  contenders_.push_back(std::move(contender));
  return {};
}

/// With registered buffers each library has its own.
Status CudaMeasurement::give_buffers(Contender& contender) {
  contender.input = input_.get();
  contender.output = output_.get();
  if (!request_.registered) return {};
  TUTTI_ASSIGN(size_t bytes, largest(control_, largest_buffer(problems_, control_.rank())));
  bytes = (bytes + kRegisteredGrain - 1) / kRegisteredGrain * kRegisteredGrain;
  TUTTI_ASSIGN(contender.input, contender.library->take_registered(bytes));
  TUTTI_ASSIGN(contender.output, contender.library->take_registered(bytes));
  return {};
}

Result<Contender> CudaMeasurement::join(const std::string& path, Cost& cost) {
  TUTTI_TRY(meet(control_));  // ranks may share a device
  TUTTI_ASSIGN(const size_t before, cuda::free_bytes());
  TUTTI_TRY(meet(control_));
  const auto start = Clock::now();
  Contender contender{};
  TUTTI_ASSIGN(contender.library, path.empty() ? join_tutti(request_, control_) : join_nccl(path, control_));
  const std::chrono::duration<double, std::milli> init = Clock::now() - start;
  TUTTI_TRY(meet(control_));
  TUTTI_ASSIGN(const size_t joined, cuda::free_bytes());
  contender.facts = contender.library->facts();
  TUTTI_TRY(meet(control_));
  TUTTI_TRY(give_buffers(contender).with_context(contender.facts.name));
  TUTTI_TRY(meet(control_));
  TUTTI_ASSIGN(const size_t given, cuda::free_bytes());
  TUTTI_TRY(meet(control_));
  const auto first_call = Clock::now();
  TUTTI_TRY(call_first(contender).with_context(contender.facts.name + ", first calls"));
  const std::chrono::duration<double, std::milli> calls = Clock::now() - first_call;
  TUTTI_TRY(meet(control_));
  TUTTI_ASSIGN(const size_t after, cuda::free_bytes());
  const auto taken = [](size_t from, size_t to) { return static_cast<int64_t>(from) - static_cast<int64_t>(to); };
  const Cost own{init.count(), calls.count(), taken(before, joined), taken(before, joined) + taken(given, after)};
  TUTTI_ASSIGN(const auto costs, exchange(control_, own));
  cost = {};
  for (const Cost& other : costs) {
    cost.init_ms = std::max(cost.init_ms, other.init_ms);
    cost.calls_ms = std::max(cost.calls_ms, other.calls_ms);
    cost.init_bytes = std::max(cost.init_bytes, other.init_bytes);
    cost.bytes = std::max(cost.bytes, other.bytes);
  }
  return contender;
}

Status CudaMeasurement::call_first(const Contender& contender) {
  Library& library = *contender.library;
  for (const check::Problem& problem : {problems_.front(), problems_.back()}) {
    TUTTI_TRY(library.prepare(problem));
    TUTTI_TRY(library.run(contender.input, contender.output, queue_.get()));
    TUTTI_TRY(finish(library));
  }
  return {};
}

std::vector<LibraryFacts> CudaMeasurement::libraries() const {
  std::vector<LibraryFacts> facts;
  facts.reserve(contenders_.size());
  for (const Contender& contender : contenders_) facts.push_back(contender.facts);
  return facts;
}

CallBuffers CudaMeasurement::buffers_for(const check::Problem& problem, bool in_place,
                                         const Contender& contender) const {
  const int rank = control_.rank();
  const size_t element_bytes = size_of(problem.type);
  std::byte* const output = contender.output;
  if (!in_place) return {false, output, check::output_elements(problem, rank) * element_bytes, contender.input, output};
  const auto within = *check::in_place(problem, rank);
  return {true, output, within.elements * element_bytes, output + within.input * element_bytes,
          output + within.output * element_bytes};
}

Result<Row> CudaMeasurement::measure(const check::Problem& problem) {
  Row row{problem, {}, std::nullopt, {}};
  if (contenders_.size() > 1) row.theirs.emplace();
  const cuda::Trial trial(problem, control_.rank(), request_.check ? request_.checked_bytes : 0);
  for (const Contender& contender : contenders_) TUTTI_TRY(contender.library->prepare(problem));
  TUTTI_ASSIGN(row.ran, contenders_.front().library->ran());
  const bool can_be_in_place = check::in_place(problem, control_.rank()).has_value();
  for (const bool in_place : {false, true}) {
    if (!wanted(in_place, can_be_in_place)) continue;
    TUTTI_ASSIGN(const auto timings, measure(trial, in_place, problem));
    const auto keep = [&](Timings& kept, const Timing& timing) {
      (in_place ? kept.in_place : kept.out_of_place) = timing;
    };
    keep(row.ours, timings.front());
    if (row.theirs) keep(*row.theirs, timings.back());
  }
  return row;
}

Result<std::vector<Timing>> CudaMeasurement::measure(const cuda::Trial& trial, bool in_place,
                                                     const check::Problem& problem) {
  const bool repeats = !in_place || repeats_in_place(problem.collective);
  std::vector<Subject> subjects;
  for (Contender& contender : contenders_) {
    subjects.push_back({contender, buffers_for(problem, in_place, contender), request_.group});
    TUTTI_TRY(begin(subjects.back(), trial, problem).with_context(contender.facts.name));
  }
  // A reduction that is repeated in place would drift to infinities and slow subnormals; with zeros it stays zero.
  for (const Subject& subject : subjects) {
    if (repeats) break;
    TUTTI_TRY(status_of(cudaMemsetAsync(subject.buffers.buffer, 0, subject.buffers.buffer_bytes, queue_.get()),
                        "cannot clear a buffer"));
  }
  for (int batch = 0; batch < request_.batches; ++batch) {
    for (Subject& subject : subjects) {  // in turn, so that disturbances of the machine affect both
      auto batch_us = time_batch(subject, subject.launches);
      if (!batch_us.ok()) return batch_us.status().with_context(subject.contender.facts.name);
      subject.batches_us.push_back(*batch_us);
    }
  }
  std::vector<Timing> timings;
  for (Subject& subject : subjects) {
    if (request_.check && repeats) {
      TUTTI_TRY(check(subject, trial, problem).with_context(subject.contender.facts.name));
    }
    summarize(subject.batches_us, subject.timing);
    timings.push_back(subject.timing);
  }
  return timings;
}

Status CudaMeasurement::begin(Subject& subject, const cuda::Trial& trial, const check::Problem& problem) {
  if (!request_.graph && request_.check) {
    TUTTI_TRY(check(subject, trial, problem));
  } else {
    TUTTI_TRY(prepare(subject.buffers, trial));
  }
  TUTTI_ASSIGN(const double estimate_us, time_batch(subject, request_.warmup.value_or(kFewWarmUpCalls)));
  const int groups = std::max(calls_of_batch(request_, estimate_us) / request_.group, 1);
  subject.launches = groups;
  if (!request_.graph) return {};
  if (request_.check) {
    TUTTI_TRY(capture(subject, 1));
    TUTTI_TRY(check(subject, trial, problem));
  }
  const auto fitting = static_cast<int>(std::clamp(kGraphUs / std::max(estimate_us, 0.01), 1.0, double{kGraphCalls}));
  TUTTI_TRY(capture(subject, std::min(std::max(fitting / request_.group, 1), groups)));
  subject.launches = std::max(groups / subject.groups, 1);
  return {};
}

Status CudaMeasurement::prepare(const CallBuffers& buffers, const cuda::Trial& trial) {
  TUTTI_TRY(status_of(cudaMemsetAsync(buffers.buffer, check::kPoison, buffers.buffer_bytes, queue_.get()),
                      "cannot poison an output"));
  return trial.load(buffers.input, queue_.get());
}

Status CudaMeasurement::check(Subject& subject, const cuda::Trial& trial, const check::Problem& problem) {
  TUTTI_TRY(prepare(subject.buffers, trial));
  TUTTI_TRY(enqueue(subject));
  TUTTI_TRY(finish(*subject.contender.library));
  TUTTI_ASSIGN(const Finding finding, trial.find(subject.buffers.output, queue_.get()));
  const std::string what = fmt::format("{}: {}{}", subject.contender.facts.name, to_string(problem),
                                       subject.buffers.in_place ? ", in place" : "");
  TUTTI_ASSIGN(const uint64_t wrong, count_wrong(control_, finding, what));
  subject.timing.wrong = std::max(subject.timing.wrong, wrong);
  return {};
}

Status CudaMeasurement::capture(Subject& subject, int groups) {
  subject.graph = nullptr;  // so that enqueue() makes calls
  TUTTI_ASSIGN(auto graph, cuda::capture(queue_.get(), [&] {
                 Status status;
                 for (int i = 0; i < groups && status.ok(); ++i) status = enqueue(subject);
                 return status;
               }));
  subject.graph = std::move(graph);
  subject.groups = groups;
  return {};
}

Status CudaMeasurement::enqueue(const Subject& subject) {
  if (subject.graph == nullptr) return enqueue_group(subject);
  return status_of(cudaGraphLaunch(subject.graph.get(), queue_.get()), "cannot launch a graph");
}

Status CudaMeasurement::enqueue_group(const Subject& subject) {
  Library& library = *subject.contender.library;
  const auto run = [&] { return library.run(subject.buffers.input, subject.buffers.output, queue_.get()); };
  if (subject.calls == 1) return run();
  TUTTI_TRY(library.start_group());
  Status status;
  for (int i = 0; i < subject.calls && status.ok(); ++i) status = run();
  const Status ended = library.end_group();
  return status.ok() ? ended : status;
}

Result<double> CudaMeasurement::time_batch(const Subject& subject, int launches) {
  TUTTI_TRY(meet(control_));
  TUTTI_TRY(enqueue(subject));  // not timed: in it the devices wait for each other
  if (request_.launch) return time_enqueueing(subject);
  TUTTI_TRY(record(start_.get()));
  for (int i = 0; i < launches; ++i) TUTTI_TRY(enqueue(subject));
  TUTTI_TRY(finish(*subject.contender.library));
  float elapsed_ms = 0;
  TUTTI_TRY(status_of(cudaEventElapsedTime(&elapsed_ms, start_.get(), end_.get()), "cannot time a batch"));
  return largest(control_, 1000.0 * static_cast<double>(elapsed_ms) / launches / subject.groups / subject.calls);
}

Result<double> CudaMeasurement::time_enqueueing(const Subject& subject) {
  TUTTI_TRY(finish(*subject.contender.library));
  std::vector<double> times_us;
  const int launches = std::max(kQueuedCalls / subject.groups / subject.calls, 1);
  for (int i = 0; i < launches; ++i) {
    const auto start = Clock::now();
    TUTTI_TRY(enqueue(subject));
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    times_us.push_back(took.count());
  }
  TUTTI_TRY(finish(*subject.contender.library));
  std::nth_element(times_us.begin(), times_us.begin() + launches / 2, times_us.end());
  return largest(control_, times_us[static_cast<size_t>(launches) / 2] / subject.groups / subject.calls);
}

Status CudaMeasurement::finish(const Library& library) {
  TUTTI_TRY(record(end_.get()));
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    const cudaError_t state = cudaEventQuery(end_.get());
    if (state == cudaSuccess) return library.async_error();
    if (state != cudaErrorNotReady) return status_of(state, "a call failed on the device");
    cudaGetLastError();  // "not ready" is no error, and no later call shall take it for an error
    TUTTI_TRY(library.async_error());
    TUTTI_TRY(control_.async_error());
    if (Clock::now() > deadline) {
      return Status(Code::kTimeout, fmt::format("calls have not ended on the device within {} minutes",
                                                std::chrono::minutes(kPatience).count()));
    }
    std::this_thread::sleep_for(kPollPause);
  }
}

}  // namespace

Result<std::unique_ptr<Measurement>> make_cuda_measurement(const Request& request, Communicator& control,
                                                           const std::vector<check::Problem>& problems) {
  auto measurement = std::make_unique<CudaMeasurement>(request, control, problems);
  if (const Status opened = measurement->open(); !opened.ok()) {
    measurement->abort(opened.text());
    return opened;
  }
  return std::unique_ptr<Measurement>(std::move(measurement));
}

}  // namespace tutti::bench
