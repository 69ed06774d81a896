// SPDX-License-Identifier: Apache-2.0
// Rules of algorithms about plans: each plan, the plans of all ranks together, and the agreement of instances.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "program/repeat.h"
#include "program/verify/verify.h"
#include "tools/check/compare.h"
#include "tools/plugin_test/channels.h"
#include "tools/plugin_test/rule.h"

namespace tutti::tools::plugin_test {
namespace {

void test_plans(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    const uint32_t ranks = channels.job().rank_count();
    for (const Work& work : works(channels, variants)) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto plan = channels.plan(request_for(work, rank));
        if (!plan.ok() || plan->rank_count == ranks) continue;
        trial.violate(fmt::format("the plan of rank {} for {} is for {} ranks", rank,
                                  text_of(work, variants, channels.job()), plan->rank_count));
      }
    }
  });
}

/// The plans of all ranks, without repeats; nothing if a rank declines.
std::vector<program::Plan> plans_of_all(Channels& channels, const Work& work) {
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < channels.job().rank_count(); ++rank) {
    auto plan = channels.plan(request_for(work, rank));
    if (!plan.ok()) return {};
    auto written_out = program::unroll(*std::move(plan));
    if (!written_out.ok()) return {};
    plans.push_back(*std::move(written_out));
  }
  return plans;
}

void test_proof(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    for (const Work& work : works(channels, variants)) {
      const std::vector<program::Plan> plans = plans_of_all(channels, work);
      if (plans.empty()) continue;
      for (const bool in_place : program::buffer_uses(plans[0].collective)) {
        bool is_undecided = false;
        const Status proved = program::verify(plans, {.slots = 2, .in_place = in_place}, nullptr, &is_undecided);
        if (proved.ok() || is_undecided) continue;
        trial.violate(fmt::format("{}{}: {}", text_of(work, variants, channels.job()), in_place ? ", in place" : "",
                                  proved.text()));
      }
    }
  });
}

void test_declines(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    std::optional<Work> first;
    bool declines = false;
    for (const Work& work : works(channels, variants)) {
      const bool is_next = !first || first->variant != work.variant || first->collective != work.collective;
      for (uint32_t rank = 0; rank < channels.job().rank_count(); ++rank) {
        const bool declined = !channels.plan(request_for(work, rank)).ok();
        if (is_next && rank == 0) {
          first = work;
          declines = declined;
        } else if (declined != declines) {
          trial.violate(fmt::format("{}: rank {} {}, but rank 0 on channel {} with root {} {}",
                                    text_of(work, variants, channels.job()), rank, declined ? "declines" : "plans",
                                    first->channel, first->root, declines ? "declines" : "plans"));
        }
      }
    }
  });
}

struct Asked {
  Work work;
  uint32_t rank;
  Result<program::Plan> plan;
};

std::vector<Asked> ask_all(Channels& channels, const std::vector<Variant>& variants) {
  std::vector<Asked> all;
  for (const Work& work : works(channels, variants)) {
    for (uint32_t rank = 0; rank < channels.job().rank_count(); ++rank) {
      all.push_back({work, rank, channels.plan(request_for(work, rank))});
    }
  }
  return all;
}

bool is_same(const Result<program::Plan>& first, const Result<program::Plan>& second) {
  return first.ok() == second.ok() && (!first.ok() || *first == *second);
}

std::string change_of(const Asked& asked, const Result<program::Plan>& other) {
  if (asked.plan.ok() && other.ok()) return difference(*asked.plan, *other);
  return asked.plan.ok() ? "a plan, then none" : "no plan, then one";
}

void test_repeat(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    if (channels.job().rank_count() > 9) return;
    std::vector<Asked> all = ask_all(channels, variants);
    std::shuffle(all.begin(), all.end(), trial.random());
    for (const Asked& asked : all) {
      const auto again = channels.plan(request_for(asked.work, asked.rank));
      if (is_same(asked.plan, again)) continue;
      trial.violate(fmt::format("the plan of rank {} for {} changes: {}", asked.rank,
                                text_of(asked.work, variants, channels.job()), change_of(asked, again)));
    }
  });
}

void test_ranks(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& first) {
    const Job& job = first.job();
    if (job.rank_count() > 9) return;
    const std::vector<Asked> all = ask_all(first, variants);
    for (uint32_t rank = 1; rank < std::max(2u, job.rank_count()); ++rank) {
      Channels own(trial, job);
      if (own.is_declined() || own.count() != first.count()) {
        trial.violate(fmt::format("{}: the instance of rank {} has a different number of channels than that of rank 0",
                                  job.name(), rank));
      }
      for (const Asked& asked : all) {
        const auto other = own.plan(request_for(asked.work, asked.rank));
        if (is_same(asked.plan, other)) continue;
        trial.violate(fmt::format("{}: the instances of rank 0 and rank {} give different plans of rank {}: {}",
                                  text_of(asked.work, variants, job), rank, asked.rank, change_of(asked, other)));
      }
    }
  });
}

void test_processes(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    const Job& job = channels.job();
    for (uint32_t node = 0; node < job.node_count; ++node) {
      const auto bytes = channels.graphs()[node].encode();
      trial.answer(
          fmt::format("{}: graph of machine {} {:x}", job.name(), node, check::hash(bytes.data(), bytes.size())));
    }
    trial.answer(fmt::format("{}: {} channels", job.name(), channels.count()));
    for (const Work& work : works(channels, variants)) {
      uint64_t all = 0;
      for (uint32_t rank = 0; rank < job.rank_count(); ++rank) {
        const auto plan = channels.plan(request_for(work, rank));
        all = all * 31 + (plan.ok() ? digest(*plan) : 1);
      }
      trial.answer(fmt::format("{}: plans {:x}", text_of(work, variants, job), all));
      if (work.root > 0 || work.channel > 0) continue;
      auto cost = channels.cost(work.collective, work.variant);
      const uint64_t hash = cost.ok() ? check::hash(&*cost, sizeof *cost) : 0;
      trial.answer(fmt::format("{}: cost {:x}", text_of(work, variants, job), hash));
    }
  });
}

void test_threads(Trial& trial) {
  constexpr int kThreads = 4, kRounds = 20;
  const std::vector<Job> jobs = few_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    const std::vector<Asked> all = ask_all(channels, variants);
    std::array<const Asked*, kThreads> wrong{};  // each thread writes its own
    trial.call("plan", [&] {
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (int round = 0; round < kRounds; ++round) {
            for (size_t i = 0; i < all.size(); ++i) {
              const Asked& asked = all[(i + static_cast<size_t>(t) * 7) % all.size()];
              if (!is_same(asked.plan, channels.ask(request_for(asked.work, asked.rank)))) wrong[t] = &asked;
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    for (const Asked* const asked : wrong) {
      if (asked == nullptr) continue;
      trial.violate(fmt::format("{}: if {} threads ask at the same time, the plan of rank {} differs",
                                text_of(asked->work, variants, channels.job()), kThreads, asked->rank));
    }
  });
}

constexpr TrialRule kRules[] = {
    {{.number = "ALG-8",
      .name = "plans",
      .sentence = "A plan keeps the rules of tutti/plugin/plan.h, and is the plan that was asked for.",
      .seconds = 120},
     test_plans},
    {{.number = "ALG-9",
      .name = "proof",
      .sentence = "The plans of all ranks do their collective with two slots, out of place and in place.",
      .seconds = 240},
     test_proof},
    {{.number = "ALG-10",
      .name = "declines",
      .sentence = "A variant that declines a collective declines it for all ranks, channels and roots.",
      .seconds = 120},
     test_declines},
};

constexpr TrialRule kAgreement[] = {
    {{.number = "ALG-14",
      .name = "repeat",
      .sentence = "Equal requests give equal plans, whatever was asked before.",
      .seconds = 120},
     test_repeat},
    {{.number = "ALG-15",
      .name = "ranks",
      .sentence = "The instance of every rank gives the same channels and the same plans.",
      .seconds = 240},
     test_ranks},
    {{.number = "ALG-16",
      .name = "processes",
      .sentence = "Every process gives the same graphs, channels, plans and costs.",
      .seconds = 120,
      .needs_processes = true},
     test_processes},
    {{.number = "ALG-17",
      .name = "threads",
      .sentence = "Threads that ask at the same time get the same plans.",
      .seconds = 120},
     test_threads},
};

}  // namespace

std::span<const TrialRule> plan_rules() {
  return kRules;
}
std::span<const TrialRule> agreement_rules() {
  return kAgreement;
}

}  // namespace tutti::tools::plugin_test
