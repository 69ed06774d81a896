// SPDX-License-Identifier: Apache-2.0
// The networks that a configuration names: by the setting `network`, by plugins.network and by rules.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace tutti::plugin {

/// The networks of the setting `network`, in order of preference, as it names them. Empty: it is auto.
std::vector<std::string> fixed_networks(const config::Config& config);

/// The networks that a communicator may open, in order of preference: the fixed networks; if there are none,
/// plugins.network, then the networks that rules choose, then that of net.inside_rack.
std::vector<std::string> possible_networks(const config::Config& config);

}  // namespace tutti::plugin
