// SPDX-License-Identifier: Apache-2.0
#include "nccl/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstddef>
#include <cstring>

#include "log/log.h"
#include "nccl/errors.h"

namespace tutti::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;

/// A member that holds a number: the version that introduced it, and its permitted values.
struct Number {
  const char* name;
  int ncclConfig_t::*member;
  unsigned since;
  int minimum;
  int maximum;
  bool has_effect;
};

constexpr std::array kNumbers = {
    Number{"blocking", &ncclConfig_t::blocking, 21400, 0, 1, true},
    Number{"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, INT_MAX, false},
    Number{"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, INT_MAX, false},
    Number{"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, INT_MAX, true},
    Number{"splitShare", &ncclConfig_t::splitShare, 21800, 0, 1, false},
    Number{"trafficClass", &ncclConfig_t::trafficClass, 22600, INT_MIN, INT_MAX, false},
    Number{"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1, false},
    Number{"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, 3, false},
    Number{"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1, false},
    Number{"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, INT_MAX, false},
    Number{"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, 64, false},
    Number{"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1, false},
};

/// The application's structure may be shorter or longer than ours. Members that it does not have are undefined.
ncclConfig_t own_copy(const ncclConfig_t& config) {
  ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&own, &config, std::min(config.size, sizeof own));
  for (const Number& number : kNumbers) {
    if (own.version < number.since) own.*number.member = NCCL_CONFIG_UNDEF_INT;
  }
  if (own.version < 21700) own.netName = nullptr;
  if (own.version < 22700) own.commName = nullptr;
  return own;
}

ncclResult_t check(const ncclConfig_t& config, Wishes& wishes) {
  for (const Number& number : kNumbers) {
    const int value = config.*number.member;
    if (value == NCCL_CONFIG_UNDEF_INT) continue;
    if (value < number.minimum || value > number.maximum) {
      return fail(ncclInvalidArgument, "config: {} is {}; it may be {} to {}", number.name, value, number.minimum,
                  number.maximum);
    }
    if (!number.has_effect) wishes.ignored.push_back(fmt::format("{} = {}", number.name, value));
  }
  const bool both = config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (both && config.minCTAs > config.maxCTAs) {
    return fail(ncclInvalidArgument, "config: minCTAs {} is more than maxCTAs {}", config.minCTAs, config.maxCTAs);
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t read(const ncclConfig_t* config, bool blocking, Wishes& wishes) {
  wishes.blocking = switched("NCCL_COMM_BLOCKING", blocking);
  if (config == nullptr) return ncclSuccess;
  // The first three members are there in every version.
  if (config->magic != kMagic || config->size < offsetof(ncclConfig_t, blocking)) {
    return fail(ncclInvalidArgument, "config: not begun with NCCL_CONFIG_INITIALIZER");
  }
  const ncclConfig_t own = own_copy(*config);
  TUTTI_NCCL_TRY(check(own, wishes));
  if (own.blocking != NCCL_CONFIG_UNDEF_INT) wishes.blocking = switched("NCCL_COMM_BLOCKING", own.blocking == 1);
  if (own.maxCTAs != NCCL_CONFIG_UNDEF_INT) wishes.max_ctas = own.maxCTAs;
  if (own.netName != nullptr) wishes.network = own.netName;
  return ncclSuccess;
}

void name_ignored(const Wishes& wishes) {
  if (wishes.ignored.empty()) return;
  log::info("nccl: of the configuration, without effect on Tutti: {}", fmt::join(wishes.ignored, ", "));
}

void propose(const Wishes& wishes, Settings& settings) {
  constexpr int kMost = 64;
  if (wishes.max_ctas) settings.propose("channels", std::to_string(std::min(*wishes.max_ctas, kMost)));
  if (wishes.network.empty()) return;
  std::string name = wishes.network;  // "Socket" there, "socket" here
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  settings.propose("network", name);
}

}  // namespace tutti::nccl
