// SPDX-License-Identifier: Apache-2.0
// `tutti id`: makes the id by which ranks meet that are started by hand.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "communicator/own_interface.h"
#include "tools/commands.h"
#include "tools/session.h"
#include "tutti/unique_id.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Whoever has the id can join the job. The file can be read by its owner alone. Rank 0 serves the id at its address, so
make the id on the machine of rank 0, or name that machine with --at. Without --at, bootstrap.interface of the
configuration chooses the address.

Examples:
  tutti id --file job.id                  on the machine of rank 0; takes a port that is free now
  tutti id --at node1:7000 --file job.id  on any machine
  export TUTTI_ID=$(tutti id)             for ranks that inherit the environment)";

struct Wish {
  std::string file;
  std::string address;
  std::string config_file;
  std::vector<std::string> settings;
};

/// Serves an id for a moment, which finds a free port. With --at, the secret alone is used, so any interface serves.
Result<UniqueId> serve(const Wish& wish) {
  if (!wish.address.empty()) return UniqueId::create();
  TUTTI_ASSIGN(const config::Config config, load_config(wish.config_file, split_settings(wish.settings)));
  return communicator::create_id(config);
}

Status make(const Wish& wish) {
  TUTTI_ASSIGN(const UniqueId served, serve(wish));
  std::string text = served.to_string();
  if (!wish.address.empty()) {
    const std::string secret = text.substr(text.rfind(':'));
    TUTTI_TRY(UniqueId::from_string(wish.address + secret).status().with_context("--at"));
    text = wish.address + secret;
  }
  if (!wish.file.empty()) return base::write_secret(wish.file, text + '\n');
  fmt::print("{}\n", text);
  return {};
}

}  // namespace

void add_id(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("id", "Make the id by which ranks meet that are started by hand");
  command->footer(kFooter);
  const auto wish = std::make_shared<Wish>();
  command->add_option("--file", wish->file, "Write the id to a new file (default: print it)")->option_text("FILE");
  command->add_option("--at", wish->address, "Where rank 0 listens (default: this machine, a free port)")
      ->option_text("HOST:PORT");
  add_settings(*command, wish->config_file, wish->settings);
  command->callback([wish, &exit_code] {
    const Status made = make(*wish);
    exit_code = made.ok() ? kSuccess : fail(made);
  });
}

}  // namespace tutti::tools
