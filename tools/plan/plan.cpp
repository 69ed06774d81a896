// SPDX-License-Identifier: Apache-2.0
// `tutti plan`: what an algorithm makes every rank do, as text, as a file, proved right.
#include "plan/plan.h"

#include <fmt/format.h>

#include <memory>

#include "plan/describe.h"
#include "plan/file.h"
#include "plan/verify.h"
#include "tools/commands.h"

namespace tutti::tools {
namespace {

struct Work {
  std::string file;
  int rank = -1;
  plan::VerifyOptions verify;
};

Status print(const Work& work) {
  TUTTI_ASSIGN(const plan::PlanFile file, plan::read_file(work.file));
  if (work.rank >= static_cast<int>(file.plans.size())) {
    return Status(Code::kInvalidArgument, fmt::format("{} holds the plans of ranks 0 to {}; there is no rank {}",
                                                      work.file, file.plans.size() - 1, work.rank));
  }
  for (const plan::Plan& plan : file.plans) {
    if (work.rank >= 0 && plan.rank != static_cast<uint32_t>(work.rank)) continue;
    fmt::print("{} {}{}{}, rank {} of {}, channel {}\n{}\n", to_string(plan.collective), file.algorithm,
               file.variant.empty() ? "" : ":", file.variant, plan.rank, plan.rank_count, plan.channel,
               plan::to_text(plan));
  }
  return {};
}

Status verify(const Work& work) {
  TUTTI_ASSIGN(const plan::PlanFile file, plan::read_file(work.file));
  const Status verdict = plan::verify(file.plans, work.verify);
  if (!verdict.ok()) return verdict.with_context(work.file);
  const plan::Plan& first = file.plans.front();
  fmt::print("{}: right: {} over {} ranks, {}, {} slots\n", work.file, to_string(first.collective), first.rank_count,
             work.verify.in_place ? "in place" : "out of place", work.verify.slots);
  return {};
}

}  // namespace

void add_plan(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("plan", "Print and verify plans");
  command->require_subcommand(1);
  const auto work = std::make_shared<Work>();
  const auto add = [&](const char* name, const char* text, Status (*action)(const Work&)) {
    CLI::App* verb = command->add_subcommand(name, text);
    verb->add_option("file", work->file, "A plan file, YAML or JSON")->required()->option_text("FILE");
    verb->callback([work, action, &exit_code] {
      const Status status = action(*work);
      exit_code = status.ok() ? kSuccess : fail(status);
    });
    return verb;
  };
  add("print", "Print what each rank does, one line per step", print)
      ->add_option("--rank", work->rank, "Only this one")
      ->check(CLI::NonNegativeNumber)
      ->option_text("RANK");
  CLI::App* verb = add("verify", "Prove that the plans give the right result and cannot deadlock", verify);
  verb->add_option("--slots", work->verify.slots, "Messages that fit between two ranks (default 2)")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  verb->add_flag("--in-place", work->verify.in_place, "Input and output share memory");
}

}  // namespace tutti::tools
