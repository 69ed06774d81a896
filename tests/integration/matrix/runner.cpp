// SPDX-License-Identifier: Apache-2.0
#include "integration/matrix/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "integration/matrix/gpu.h"
#include "tools/check/compare.h"
#include "tools/check/random_input.h"

namespace tutti::matrix {
namespace {

/// The result of one rank for one case.
struct Finding {
  std::string failure;  ///< empty: none
  bool offered = true;
  uint64_t hash = 0;  ///< hash of the output, if it must be equal on all ranks
};

/// A buffer between two guards, which no call may write.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuardBytes) {
    check::poison(memory_.data(), memory_.size());
  }
  std::byte* data() { return memory_.data() + kGuardBytes; }
  /// With the guards.
  std::span<std::byte> memory() { return memory_; }
  size_t size() const { return bytes_; }
  bool guards_intact() const {
    return check::count_written(memory_.data(), kGuardBytes) == 0 &&
           check::count_written(memory_.data() + kGuardBytes + bytes_, kGuardBytes) == 0;
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  size_t bytes_;
  std::vector<std::byte> memory_;
};

/// One rank's side of one case.
class Trial {
 public:
  Trial(const Case& one, const check::Reference& reference, Communicator& communicator)
      : one_(one),
        problem_(one.problem),
        reference_(reference),
        communicator_(communicator),
        rank_(communicator.rank()),
        element_bytes_(size_of(problem_.type)),
        call_(problem_, rank_) {}

  Finding run() {
    Finding finding;
    const bool chosen = !problem_.uneven && problem_.collective != Collective::kSendRecv;
    if (chosen && !is_offered(finding)) return finding;
    finding.failure = one_.in_place ? in_place(finding) : out_of_place(finding);
    return finding;
  }

 private:
  /// Whether the forced choice can do this call, and runs it.
  bool is_offered(Finding& finding) {
    const bool of_one = problem_.collective == Collective::kGather || problem_.collective == Collective::kReduce;
    const auto choice = communicator_.choose(problem_.collective, problem_.count, problem_.type, problem_.op,
                                             one_.setting.registered && !of_one);
    finding.offered = choice.status().code() != Code::kUnsupported;
    if (!choice.ok()) {
      const bool known = offers(one_.setting, problem_.collective, problem_.rank_count);
      if (finding.offered || known) finding.failure = choice.status().to_string();
      return false;
    }
    const std::string ran = choice->variant.empty() ? choice->algorithm : choice->algorithm + "/" + choice->variant;
    const bool forced =
        problem_.rank_count == 1 || (ran == one_.setting.algorithm && choice->protocol == one_.setting.protocol);
    if (!forced) finding.failure = fmt::format("{} × {} was chosen", ran, choice->protocol);
    return forced;
  }

  std::string out_of_place(Finding& finding) {
    GuardedBuffer input(check::input_elements(problem_, rank_) * element_bytes_);
    check::fill_input(problem_, rank_, 0, check::input_elements(problem_, rank_), input.data());
    const uint64_t before = check::hash(input.data(), input.size());
    GuardedBuffer output(check::output_elements(problem_, rank_) * element_bytes_);
    std::string failure = call_and_check(input, 0, output, 0, finding);
    if (failure.empty() && check::hash(input.data(), input.size()) != before) failure = "the input was changed";
    // All ranks make the second run, with any result of this rank: its peers wait for it there.
    if (check::reduces(problem_.collective) && problem_.count * size_of(problem_.type) <= kRepeatBytes) {
      const std::string again = repeat(input, output);
      if (failure.empty()) failure = again;
    }
    return failure;
  }

  std::string in_place(Finding& finding) {
    const auto place = *check::in_place(problem_, rank_);
    GuardedBuffer buffer(place.elements * element_bytes_);
    const size_t input = place.input * element_bytes_;
    check::fill_input(problem_, rank_, 0, check::input_elements(problem_, rank_), buffer.data() + input);
    return call_and_check(buffer, input, buffer, place.output * element_bytes_, finding);
  }

  /// The call, on buffers at these bytes of `in` and `out`, which may be the same.
  Status call(GuardedBuffer& in, size_t input, GuardedBuffer& out, size_t output) {
    if (!on_gpus(one_.setting.reach)) return call_(communicator_, in.data() + input, out.data() + output);
    const auto run = [&](void* from, void* to, Stream stream) { return call_(communicator_, from, to, stream); };
    const size_t guard = static_cast<size_t>(in.data() - in.memory().data());
    TUTTI_TRY(run_on_gpu({in.memory(), guard + input, out.memory(), guard + output},
                         one_.setting.reach == Reach::kGraphs, run));
    return communicator_.async_error();
  }

  std::string call_and_check(GuardedBuffer& in, size_t input_offset, GuardedBuffer& out, size_t output_offset,
                             Finding& finding) {
    const Status status = call(in, input_offset, out, output_offset);
    if (!status.ok()) return status.to_string();
    const std::byte* const output = out.data() + output_offset;
    const auto comparison = check::compare(problem_, reference_, rank_, output);
    if (comparison.wrong > 0) return fmt::format("{} wrong: {}", comparison.wrong, comparison.first);
    if (!in.guards_intact() || !out.guards_intact()) return "memory beside a buffer was written";
    if (check::same_everywhere(problem_.collective)) {
      finding.hash = check::hash(output, check::output_elements(problem_, rank_) * element_bytes_);
    }
    return {};
  }

  /// A second run must give the same bits.
  std::string repeat(GuardedBuffer& input, GuardedBuffer& first) {
    GuardedBuffer second(first.size());
    const Status status = call(input, 0, second, 0);
    if (!status.ok()) return status.to_string();
    const bool same = first.size() == 0 || std::memcmp(first.data(), second.data(), first.size()) == 0;
    return same ? std::string() : "a second run gave other bits";
  }

  static constexpr size_t kRepeatBytes = 1 << 16;

  const Case& one_;
  const check::Problem& problem_;
  const check::Reference& reference_;
  Communicator& communicator_;
  int rank_;
  size_t element_bytes_;
  check::Call call_;
};

/// All cases of one rank count. Ranks prepare together, try, and rank 0 judges.
class Runner {
 public:
  explicit Runner(std::span<const Case> cases)
      : cases_(cases), team_(cases.front().problem.rank_count), findings_(static_cast<size_t>(team_.size())) {}

  Result<Tally> run() {
    for (const Case& one : cases_) {
      if (find(one.setting) == settings_.size()) settings_.push_back(one.setting);
    }
    for (size_t i = 0; i < settings_.size(); ++i) {
      TUTTI_ASSIGN(const UniqueId id, UniqueId::create());
      ids_.push_back(id);
    }
    creation_failures_.assign(settings_.size(), std::vector<Status>(findings_.size()));
    team_.run([this](int rank) { run_rank(rank); });
    return tally_;
  }

 private:
  size_t find(const Setting& setting) const {
    return static_cast<size_t>(std::find(settings_.begin(), settings_.end(), setting) - settings_.begin());
  }

  struct Joined {
    std::optional<Communicator> communicator;
    std::vector<Registration> registrations;
  };

  /// A communicator for each setting; empty if any rank failed to make it.
  std::vector<Joined> create(int rank) {
    std::vector<Joined> all;
    for (size_t i = 0; i < settings_.size(); ++i) {
      auto created = Communicator::create(ids_[i], rank, team_.size(), options(settings_[i], rank, team_.size()));
      creation_failures_[i][static_cast<size_t>(rank)] = created.status();
      all.push_back({created.ok() ? std::optional(std::move(created).value()) : std::nullopt, {}});
    }
    team_.meet();
    for (size_t i = 0; i < settings_.size(); ++i) {
      if (!creation_failure(i).ok()) all[i].communicator.reset();
    }
    team_.meet();
    for (size_t i = 0; i < settings_.size(); ++i) {
      if (!settings_[i].registered || !all[i].communicator) continue;
      auto registered = register_buffers(*all[i].communicator);
      creation_failures_[i][static_cast<size_t>(rank)] = registered.status();
      if (registered.ok()) all[i].registrations = *std::move(registered);
    }
    team_.meet();
    return all;
  }
  Status creation_failure(size_t setting) const {
    for (const Status& status : creation_failures_[setting]) TUTTI_TRY(status);
    return {};
  }

  void run_rank(int rank) {
    if (on_gpus(cases_.front().setting.reach)) use_gpu(rank);
    std::vector<Joined> joined = create(rank);
    for (const Case& one : cases_) {
      if (rank == 0) prepare(one);
      team_.meet();
      const size_t setting = find(one.setting);
      Finding& finding = findings_[static_cast<size_t>(rank)];
      const Status created = creation_failure(setting);
      finding =
          created.ok() ? Trial(one, *reference_, *joined[setting].communicator).run() : Finding{created.to_string()};
      team_.meet();
      if (rank == 0) judge(one);
    }
  }

  void prepare(const Case& one) {
    if (reference_ && reference_seed_ == one.problem.seed) return;
    reference_ = check::Reference::for_all(one.problem);
    reference_seed_ = one.problem.seed;
  }

  void judge(const Case& one) {
    const auto not_offered = [](const Finding& finding) { return !finding.offered && finding.failure.empty(); };
    if (std::all_of(findings_.begin(), findings_.end(), not_offered)) {
      ++tally_.not_offered;
      return;
    }
    std::string failure;
    for (size_t rank = 0; rank < findings_.size(); ++rank) {
      const Finding& finding = findings_[rank];
      if (!finding.failure.empty()) failure += fmt::format("\n  rank {}: {}", rank, finding.failure);
      if (!finding.offered) failure += fmt::format("\n  rank {}: not offered, but to others it is", rank);
      if (finding.hash != findings_.front().hash) failure += fmt::format("\n  rank {}: other bits than rank 0", rank);
    }
    ++(failure.empty() ? tally_.passed : tally_.failed);
    if (!failure.empty()) fmt::print(stderr, "FAILED {}{}\n", to_string(one), failure);
  }

  std::span<const Case> cases_;
  Team team_;
  std::vector<Setting> settings_;
  std::vector<UniqueId> ids_;                           // by setting
  std::vector<std::vector<Status>> creation_failures_;  // by setting and rank
  std::vector<Finding> findings_;                       // by rank
  std::optional<check::Reference> reference_;
  uint64_t reference_seed_ = 0;
  Tally tally_;
};

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  passed += other.passed;
  failed += other.failed;
  not_offered += other.not_offered;
  return *this;
}

Result<Tally> run_cases(std::span<const Case> cases) {
  return Runner(cases).run();
}

}  // namespace tutti::matrix
