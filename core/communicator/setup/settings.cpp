// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/settings.h"

#include <fmt/format.h>

#include "communicator/setup/figures.h"
#include "communicator/setup/limits.h"
#include "communicator/setup/racks.h"
#include "topology/document.h"

namespace tutti::communicator {

Status check_settings(const config::Config& config) {
  TUTTI_TRY(check_network_settings(config));
  TUTTI_TRY(check_racks(config));
  TUTTI_TRY(hardware_of(config).status());
  const std::string& topology = config.text("topology.file");
  if (topology.empty()) return {};
  return topology::Document::load(topology).status().with_context(
      fmt::format("{}: topology.file", config.place("topology.file")));
}

}  // namespace tutti::communicator
