// SPDX-License-Identifier: Apache-2.0
// The `tutti` command: benchmarks, plans, configuration and plugins from the shell.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/suggest.h"
#include "log/log.h"
#include "tools/commands.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Start here:
  tutti bench all_reduce --ranks 4                    a sweep over sizes, with every result checked
  tutti bench all_reduce --ranks 4 --set protocol=ll  the same with another protocol
  tutti explain all_reduce --ranks 4 --size 1M        why it runs as it runs
  tutti tune --ranks 4 --out table.yaml               what is fastest here, measured, for the tuner plugin 'table'
  tutti config show                                   every setting, its value and where that came from
  tutti plugin list                                   what can be loaded here
  tutti topo show                                     what joins the GPUs and networks of this machine
  tutti id --file job.id                              where ranks that are started by hand meet, with a secret

Exit codes: 0 success; 1 failure, or wrong results; 2 a command line that makes no sense.)";

/// Says that a word of the command line is no command or option of the last command that was understood.
std::string not_known(const CLI::App& tutti, const std::string& word) {
  const CLI::App* command = &tutti;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  std::vector<std::string> known;
  const auto add_options = [&known](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back(name);
    }
  };
  const bool is_option = word.starts_with("--");
  if (is_option) add_options(*command);
  for (const CLI::App* verb : command->get_subcommands([](const CLI::App*) { return true; })) {
    const bool is_group = verb->get_name().empty();  // of options
    if (is_option && is_group) add_options(*verb);
    if (!is_option && !is_group) known.push_back(verb->get_name());
  }
  const std::string dashes = is_option ? "--" : "";
  const std::string meant = config::nearest(word.substr(dashes.size()), known);
  const std::string proposal = meant.empty() ? "" : fmt::format("; did you mean '{}{}'?", dashes, meant);
  return fmt::format("'{}' is not known here{}", word, proposal);
}

/// Why the command line makes no sense.
std::string usage_problem(const CLI::App& tutti, const CLI::ParseError& error, std::span<char* const> words) {
  // `-np 4` of mpirun: CLI11 takes it for the option -n with the value 'p', and complains of the number.
  const auto is_np = [](const char* word) { return std::string_view(word) == "-np"; };
  if (std::any_of(words.begin(), words.end(), is_np)) return "'-np' is not known here; did you mean '-n'?";
  const auto unknown = tutti.remaining(true);
  return unknown.empty() ? error.what() : not_known(tutti, unknown.front());
}

int run(int argc, char** argv) {
  log::set_failure_level(log::Level::kInfo);  // every failure that a call returns is printed here
  CLI::App tutti("Tutti: collective communication from plugins.", "tutti");
  int exit_code = kSuccess;
  tutti.set_version_flag("--version", "tutti " TUTTI_VERSION, "Print the version");
  tutti.require_subcommand(1);
  tutti.footer(kFooter);
  tutti.get_formatter()->column_width(26);
  add_bench(tutti, exit_code);
  add_explain(tutti, exit_code);
  add_plan(tutti, exit_code);
  add_search(tutti, exit_code);
  add_simulate(tutti, exit_code);
  add_config(tutti, exit_code);
  add_plugin(tutti, exit_code);
  add_topo(tutti, exit_code);
  add_tune(tutti, exit_code);
  add_id(tutti, exit_code);
  try {
    tutti.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return tutti.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string problem = usage_problem(tutti, error, std::span(argv, static_cast<size_t>(argc)));
    fmt::print(stderr, "tutti: {}; see 'tutti --help' and 'tutti COMMAND --help'\n", problem);
    return kUsage;
  }
  return exit_code;
}

}  // namespace

int fail(const Status& status) {
  std::fflush(stdout);  // main() reports a failure of this
  fmt::print(stderr, "tutti: {}\n", status.to_string());
  return kFailure;
}

bool output_is_out() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  fmt::print(stderr, "tutti: {}\n", base::file_error("cannot write the output").to_string());
  return false;
}

}  // namespace tutti::tools

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes is an error like any other
  try {
    const int exit_code = tutti::tools::run(argc, argv);
    return tutti::tools::output_is_out() ? exit_code : tutti::tools::kFailure;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti: {}\n", error.what());
    return tutti::tools::kFailure;
  }
}
