// SPDX-License-Identifier: Apache-2.0
// `tutti plan`: the plans of an algorithm for all ranks, as a file or as text, with their proof.
#include "program/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/file.h"
#include "program/describe.h"
#include "program/verify/prove.h"
#include "tools/commands.h"
#include "tools/names.h"
#include "tools/plan/draw.h"
#include "tools/plan/generate.h"
#include "tools/plan/pass.h"
#include "tools/session.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Examples:
  tutti plan export all_reduce --algorithm direct/two-shot --ranks 4 -o two-shot.yaml
  tutti plan print two-shot.yaml --rank 1
  tutti plan verify two-shot.yaml                 # out of place and in place
  tutti plan verify two-shot.yaml --out-of-place
  tutti plan verify two-shot.yaml --all           # all counter-examples
  tutti plan export broadcast --algorithm ring --ranks 8 --root 3 | tutti plan verify -
  tutti plan verify --collective all_reduce --algorithm ring --ranks 16384
  tutti plan print two-shot.yaml --rank 1 --pass direct_store
  tutti plan draw two-shot.yaml -o two-shot.svg
  tutti plan draw --collective all_reduce --ranks 16384 --first-rank 12345 --rows 8 --time 12 -o part.svg
  tutti plan export all_reduce --algorithm /opt/mine/tutti-algo-mine.so/two-shot   # a plugin's file, and its variant)";

struct Work {
  std::string file;
  int rank = -1;
  uint32_t slots = program::VerifyOptions{}.slots;
  bool in_place = false;      ///< of `verify`: only in place
  bool out_of_place = false;  ///< of `verify`: only out of place
  bool all = false;
  std::string pass;
  View view;

  PlanQuestion question;
  std::string collective;
  std::string output;
  std::string config_file;
  std::vector<std::string> settings;
};

/// The plans that the options of an algorithm ask for.
Result<program::PlanFile> make(const Work& work) {
  PlanQuestion question = work.question;
  question.collective = *collective_from(work.collective);
  if (question.host_count > question.rank_count || question.root >= question.rank_count) {
    return Status(Code::kInvalidArgument, fmt::format("{} ranks have no {} hosts, or no root {}", question.rank_count,
                                                      question.host_count, question.root));
  }
  TUTTI_ASSIGN(config::Config config, load_config(work.config_file, split_settings(work.settings)));
  return generate(question, std::move(config));
}

Result<program::PlanFile> read(const Work& work) {
  if (!work.collective.empty()) return make(work);
  if (work.file != "-") return program::read_file(work.file);
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  return program::parse_file(text, "standard input");
}

/// The origin of the plans, for texts.
const std::string& source_of(const Work& work) {
  return work.collective.empty() ? work.file : work.question.algorithm;
}

Status print(const Work& work) {
  TUTTI_ASSIGN(const program::PlanFile file, read(work));
  if (work.rank >= static_cast<int>(file.plans.size())) {
    return Status(Code::kInvalidArgument, fmt::format("{} holds the plans of ranks 0 to {}; there is no rank {}",
                                                      source_of(work), file.plans.size() - 1, work.rank));
  }
  const std::string name = fmt::format("{}{}{}", file.algorithm, file.variant.empty() ? "" : "/", file.variant);
  if (!work.pass.empty()) {
    const auto rank = static_cast<uint32_t>(std::max(0, work.rank));
    const auto shown = show_pass(work.pass, file, rank, work.in_place);
    if (!shown.ok())
      return shown.status().with_context(fmt::format("{}: rank {}: {}", source_of(work), rank, work.pass));
    fmt::print("{}\n\n{}", name, *shown);
    return {};
  }
  fmt::print("{}\n\n", name);
  for (const program::Plan& plan : file.plans) {
    if (work.rank >= 0 && plan.rank != static_cast<uint32_t>(work.rank)) continue;
    fmt::print("{}\n", program::to_text(plan));
  }
  return {};
}

/// Prints the sentence of plans that are proved. `uses`: "in place", for example.
void print_right(const Work& work, const program::PlanFile& file, const std::string& uses, const std::string& how) {
  const program::Plan& first = file.plans.front();
  fmt::print("{}: right: {} over {} ranks, {}, with {} slots, proved {}\n", source_of(work),
             to_string(first.collective), first.rank_count, uses, work.slots, how);
}

/// The text of all uses of buffers that the collective allows.
std::string all_uses(const program::PlanFile& file) {
  std::vector<std::string> names;
  for (const bool in_place : program::buffer_uses(file.plans.front().collective)) {
    names.emplace_back(program::text_of_use(in_place));
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

/// Prints all counter-examples, out of place and in place.
Status verify_all(const Work& work, const program::PlanFile& file) {
  TUTTI_ASSIGN(const auto faults, program::all_faults(file, source_of(work), work.slots, program::kPatientLimits));
  for (const std::string& fault : faults) fmt::print("{}\n", fault);
  if (!faults.empty()) {
    return {Code::kFailedPrecondition, fmt::format("{}: {} counter-example(s)", source_of(work), faults.size())};
  }
  print_right(work, file, all_uses(file), "exactly");
  return {};
}

Status verify(const Work& work) {
  TUTTI_ASSIGN(const program::PlanFile file, read(work));
  if (work.all) return verify_all(work, file);
  const bool one_use = work.in_place || work.out_of_place;
  const program::Verdict verdict =
      one_use ? program::prove_file(file, source_of(work), {work.slots, work.in_place}, program::kPatientLimits)
              : program::prove_uses(file, source_of(work), work.slots, program::kPatientLimits);
  TUTTI_TRY(verdict.status);
  print_right(work, file, one_use ? program::text_of_use(work.in_place) : all_uses(file), verdict.how);
  return {};
}

Status draw_plans(const Work& work) {
  TUTTI_ASSIGN(const program::PlanFile file, read(work));
  TUTTI_TRY(program::verify_file(file, source_of(work), {}, program::kPatientLimits));
  const auto picture = draw(file, work.view);
  if (!picture.ok()) return picture.status().with_context(source_of(work));
  if (!work.output.empty()) return base::write_file(work.output, *picture);
  fmt::print("{}", *picture);
  return {};
}

Status export_plans(const Work& work) {
  TUTTI_ASSIGN(const program::PlanFile file, make(work));
  if (!work.output.empty()) return program::write_file(file, work.output);
  fmt::print("{}", program::to_yaml(file));
  return {};
}

using Action = Status (*)(const Work&);

/// Declares one verb of `tutti plan`.
CLI::App* add_verb(CLI::App& command, const char* name, const char* text, const std::shared_ptr<Work>& work,
                   int& exit_code, Action action) {
  CLI::App* verb = command.add_subcommand(name, text);
  verb->callback([work, action, &exit_code] {
    const Status status = action(*work);
    exit_code = status.ok() ? kSuccess : fail(status);
  });
  return verb;
}

/// Adds the options that describe the plans of an algorithm.
void add_question(CLI::App& verb, Work& work) {
  PlanQuestion& question = work.question;
  verb.add_option("-a,--algorithm", question.algorithm, "Algorithm plugin or its file, and its variant (default ring)")
      ->option_text("NAME[/VARIANT]|/PATH.so[/VARIANT]");
  verb.add_option("-n,--ranks", question.rank_count, "Number of ranks (default 4)")
      ->check(CLI::Range(1, 1 << 16))
      ->option_text("N");
  verb.add_option("--hosts", question.host_count, "Number of hosts they are on, in blocks (default 1)")
      ->check(tools::kFromOne)
      ->option_text("N");
  verb.add_option("-r,--root", question.root, "Root of a rooted collective (default 0)")->option_text("RANK");
  verb.add_option("--channel", question.channel, "Which channel's plans (default 0)")->option_text("N");
  add_settings(verb, work.config_file, work.settings);
}

/// Adds the origin of plans: a file, or an algorithm with --collective.
void add_source(CLI::App& verb, Work& work) {
  CLI::Option_group* source = verb.add_option_group("source", "One of these");
  source->add_option("file", work.file, "A plan file, YAML or JSON; - for standard input")->option_text("FILE");
  CLI::Option* collective =
      source->add_option("--collective", work.collective, "The plans that --algorithm makes for this collective");
  collective->check(one_of(all_names<Collective>()))->option_text("COLLECTIVE");
  source->require_option(1);
  add_question(verb, work);
  // A file says all this itself.
  for (const char* name : {"--algorithm", "--ranks", "--hosts", "--root", "--channel", "--config", "--set"}) {
    verb.get_option(name)->needs(collective);
  }
}

void add_export(CLI::App& verb, Work& work) {
  verb.add_option("collective", work.collective, "The collective")
      ->required()
      ->check(one_of(all_names<Collective>()))
      ->option_text("COLLECTIVE");
  add_question(verb, work);
  verb.add_option("-o,--output", work.output, "Write there: JSON if it ends with .json (default: YAML to the terminal)")
      ->option_text("FILE");
}

}  // namespace

void add_plan(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("plan", "Print, draw, verify and export plans");
  command->require_subcommand(1);
  command->footer(kFooter);
  const auto work = std::make_shared<Work>();

  CLI::App* printed =
      add_verb(*command, "print", "Print what each rank does, one line per step", work, exit_code, print);
  add_source(*printed, *work);
  printed->add_option("--rank", work->rank, "Only this one")->check(tools::kFromZero)->option_text("RANK");
  printed->add_option("--pass", work->pass, "What this pass makes of the plan of --rank (default 0)")
      ->check(one_of(pass_names()))
      ->option_text("PASS");
  printed->add_flag("--in-place", work->in_place, "For --pass: input and output share memory");

  CLI::App* verified = add_verb(*command, "verify", "Prove that plans give the right result and cannot deadlock", work,
                                exit_code, verify);
  add_source(*verified, *work);
  verified->add_option("--slots", work->slots, "Messages that fit between two ranks (default 2)")
      ->check(tools::kFromOne)
      ->option_text("N");
  CLI::Option* in_place =
      verified->add_flag("--in-place", work->in_place, "Only calls whose input and output share memory (default: all)");
  CLI::Option* out_of_place =
      verified->add_flag("--out-of-place", work->out_of_place, "Only calls with different buffers (default: all)");
  verified->add_flag("--all", work->all, "Print every counter-example, out of place and in place")
      ->excludes(in_place)
      ->excludes(out_of_place);
  in_place->excludes(out_of_place);

  CLI::App* drawn = add_verb(*command, "draw", "Draw the messages of plans as SVG", work, exit_code, draw_plans);
  add_source(*drawn, *work);
  drawn->add_option("--first-rank", work->view.first_rank, "Only ranks from this one on")->option_text("RANK");
  drawn->add_option("--rows", work->view.rows, "Only so many ranks")->check(tools::kFromOne)->option_text("N");
  drawn->add_option("--time", work->view.units, "Only so many units of time; a step and a message take one each")
      ->check(tools::kFromOne)
      ->option_text("N");
  drawn->add_option("-o,--output", work->output, "Write there (default: to the terminal)")->option_text("FILE");

  add_export(*add_verb(*command, "export", "Write the plans that an algorithm makes", work, exit_code, export_plans),
             *work);
}

}  // namespace tutti::tools
