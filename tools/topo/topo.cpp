// SPDX-License-Identifier: Apache-2.0
// `tutti topo`: the links between the GPUs and network ports of a machine.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "bootstrap/process.h"
#include "launcher/rank_assignment.h"
#include "tools/commands.h"
#include "tools/names.h"
#include "tools/session.h"
#include "tools/topo/print.h"
#include "topology/check.h"

namespace tutti::tools {
namespace {

constexpr const char* kShowFooter = R"(
Without --topology, this machine: NUMA nodes and PCI by hwloc, GPUs and NVLinks by NVML, ports by the network plugins of
the settings. A file is NCCL's topology XML or our YAML. One without GPUs is an overlay: it gives places only.

Examples:
  tutti topo show                                        this machine as a tree
  tutti topo show --topology dgx.xml --matrix            how every pair is joined, with GB/s
  tutti topo show --topology dgx.xml --svg dgx.svg       a drawing
  tutti topo show --export yaml > here.yaml              to keep, or to correct by hand
  tutti topo show --topology cloud.xml --merge           an overlay over this machine
  tutti topo show --topology cloud.xml --complete        as if the machine had been found there)";

constexpr const char* kCheckFooter = R"(
Prints one line per finding: file:line, severity, what, and what to do. Notes and warnings are no failure; errors are:
no machine is like that, or nothing can be built from the file. Under a launcher, one rank of each host checks.)";

struct Show {
  MachineOptions machine;
  bool matrix = false;
  std::string svg_file;
  std::string format;
};

Status show(const Show& work) {
  TUTTI_ASSIGN(const Machine machine, Machine::load(work.machine));
  if (!work.svg_file.empty()) TUTTI_TRY(base::write_file(work.svg_file, svg(machine)));
  if (!work.format.empty()) {
    fmt::print("{}", work.format == "xml" ? write_xml(machine.document) : write_yaml(machine.document));
  } else if (work.matrix) {
    fmt::print("{}", matrix(machine));
  } else if (work.svg_file.empty()) {
    fmt::print("{}", tree(machine));
  }
  return {};
}

/// `host`: begins each line; may be empty. Whether the file is without errors. A file that cannot be read counts as an
/// error, so that the rest is checked.
bool check_file(const std::string& name, const std::string& host) {
  const auto document = topology::Document::load(name);
  if (!document.ok()) {
    fail(document.status());
    return false;
  }
  const auto findings = topology::check(*document);
  for (const auto& finding : findings) fmt::print("{}{}\n", host, to_string(finding, *document));
  if (findings.empty()) fmt::print("{}{}: plausible\n", host, name);
  return std::ranges::none_of(findings,
                              [](const auto& finding) { return finding.severity == topology::Severity::kError; });
}

/// The files of this host. Under a launcher, the first rank of each host checks them, since hosts may have different
/// files, and names its host. The exit code.
int check_files(const std::vector<std::string>& files) {
  const auto launched = launcher::assignment_of(std::getenv);
  if (!launched.ok()) return fail(launched.status());
  std::string host;
  if (*launched && (*launched)->rank_count > 1) {
    if ((*launched)->local_rank > 0) return kSuccess;
    host = bootstrap::host_name() + ": ";
  }
  int exit_code = kSuccess;
  for (const std::string& file : files) {
    if (!check_file(file, host)) exit_code = kFailure;
  }
  return exit_code;
}

void add_show(CLI::App& topo, int& exit_code) {
  const auto work = std::make_shared<Show>();
  CLI::App* command = topo.add_subcommand("show", "Print a machine as a tree, a matrix, a drawing or a file");
  command->footer(kShowFooter);
  MachineOptions& machine = work->machine;
  auto* file = command->add_option("--topology", machine.file, "A topology file (default: this machine)");
  file->option_text("FILE");
  command->add_option("-n,--ranks", machine.rank_count, "Ranks (default: one per GPU, or per NUMA node)")
      ->check(CLI::Range(1, 1 << 16))
      ->option_text("N");
  auto* merged = command->add_flag("--merge", machine.merge, "Lay the file over this machine")->needs(file);
  command->add_flag("--complete", machine.complete, "Make GPUs and NICs of an overlay's places, by class code")
      ->needs(file)
      ->excludes(merged);
  command->add_option("--gpu", machine.gpus, "Likewise, and of these places too")
      ->needs(file)
      ->excludes(merged)
      ->option_text("BUSID ...");
  command->add_option("--sm", machine.sm, "Compute capability × 10 of GPUs made so (default 80)")->option_text("SM");
  command->add_option("--mbps", machine.mbps, "Speed of NICs made so (default 100000)")->option_text("MBIT/S");
  command->add_flag("--matrix", work->matrix, "Print how every pair is joined");
  command->add_option("--svg", work->svg_file, "Write a drawing")->option_text("FILE");
  command->add_option("--export", work->format, "Print the document as xml (NCCL's) or yaml")
      ->check(one_of({"xml", "yaml"}))
      ->option_text("xml|yaml");
  add_settings(*command, machine.config_file, machine.settings);
  command->callback([work, &exit_code] {
    const Status status = show(*work);
    exit_code = status.ok() ? kSuccess : fail(status);
  });
}

void add_check(CLI::App& topo, int& exit_code) {
  const auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* command = topo.add_subcommand("check", "Say what is implausible in topology files");
  command->footer(kCheckFooter);
  command->add_option("files", *files, "The files")->required()->option_text("FILE ...");
  command->callback([files, &exit_code] { exit_code = check_files(*files); });
}

}  // namespace

void add_topo(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("topo", "Show and check what joins the GPUs of a machine");
  command->require_subcommand(1);
  add_show(*command, exit_code);
  add_check(*command, exit_code);
}

}  // namespace tutti::tools
