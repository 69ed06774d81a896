// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace tutti::tuner_nccl {
namespace {

constexpr nccl_plugins::PluginKind kTuners = {.word = "tuner",
                                              .type = "tuner",
                                              .symbol = "ncclTunerPlugin_v",
                                              .setting = "settings.tuner.nccl.file",
                                              .newest = kNewestVersion,
                                              .oldest = kOldestVersion,
                                              .since = "2.21"};
constexpr int kOperations = 1;  // calls that NCCL would run as one

NvlinkDomains domains_of(const tutti_topology& topology) {
  std::vector<int> ranks(topology.node_count);
  for (uint32_t rank = 0; rank < topology.rank_count; ++rank) ++ranks[topology.node_of_rank[rank]];
  const auto [fewest, most] = std::minmax_element(ranks.begin(), ranks.end());
  return {static_cast<int>(ranks.size()), *fewest, *most};
}

/// NCCL gives each communicator a number. Here, the contexts of this process count.
uint64_t next_number() {
  static std::atomic<uint64_t> number{0};
  return ++number;
}

}  // namespace

Result<Library> Library::load(const std::string& named) {
  TUTTI_ASSIGN(nccl_plugins::PluginFile file, nccl_plugins::open_file(kTuners, named));
  return Library(std::move(file));
}

std::string Library::place() const {
  return fmt::format("'{}' ({}, {}{})", table().name, file_.path, kTuners.symbol, file_.version);
}

Status Library::begin(const nccl_plugins::Sink& sink, const tutti_topology& topology, void** context) const {
  const nccl_plugins::LogScope log(sink);
  const size_t ranks = topology.rank_count;
  const size_t machines = topology.node_count;
  int code = nccl_plugins::kNcclSuccess;
  if (file_.version >= 5) {
    NvlinkDomains domains = domains_of(topology);
    Constants constants{};  // no constant of NCCL's model is one of Tutti's
    code = reinterpret_cast<Init5*>(table().init)(context, next_number(), ranks, machines, nccl_plugins::log_line,
                                                  &domains, &constants);
  } else {
    code = reinterpret_cast<Init2*>(table().init)(ranks, machines, nccl_plugins::log_line, context);
  }
  return code == nccl_plugins::kNcclSuccess ? Status() : failure("init", code);
}

void Library::end(const nccl_plugins::Sink& sink, void* context) const {
  const nccl_plugins::LogScope log(sink);
  table().end(context);
}

Status Library::choose(const nccl_plugins::Sink& sink, void* context, const Question& question, CostTable& costs,
                       int& channels) const {
  const nccl_plugins::LogScope log(sink);
  const auto [function, bytes, registered] = question;
  auto** const rows = reinterpret_cast<float**>(costs.data());
  int code = nccl_plugins::kNcclSuccess;
  if (file_.version >= 4) {
    code = reinterpret_cast<Choose4*>(table().choose)(context, function, bytes, kOperations, rows, kAlgorithms,
                                                      kProtocols, registered ? 1 : 0, &channels);
  } else if (file_.version == 3) {
    code = reinterpret_cast<Choose3*>(table().choose)(context, function, bytes, kOperations, rows, kAlgorithms,
                                                      kProtocols, &channels);
  } else {
    code = choose_one(context, question, costs, channels);
  }
  return code == nccl_plugins::kNcclSuccess ? Status() : failure("getCollInfo", code);
}

/// Version 2 names the winner. As in NCCL, the winner then costs nothing.
int Library::choose_one(void* context, const Question& question, CostTable& costs, int& channels) const {
  constexpr int kOpen = -1;
  int algorithm = kOpen;
  int protocol = kOpen;
  const int code = reinterpret_cast<Choose2*>(table().choose)(context, question.function, question.bytes, 0, 0,
                                                              kOperations, &algorithm, &protocol, &channels);
  const bool names = algorithm >= 0 && algorithm < int{kAlgorithms} && protocol >= 0 && protocol < int{kProtocols};
  if (code != nccl_plugins::kNcclSuccess || !names) return code;
  float& cost = costs[static_cast<size_t>(algorithm) * kProtocols + static_cast<size_t>(protocol)];
  if (cost >= 0) cost = 0;
  return code;
}

Status Library::failure(const char* entry, int nccl_code) const {
  const std::string warning = nccl_plugins::LogScope::last_warning();
  return {nccl_plugins::code_of(nccl_code),
          fmt::format("NCCL tuner plugin {}: {} fails with {}{}", place(), entry, nccl_plugins::name_of(nccl_code),
                      warning.empty() ? "" : ": " + warning)};
}

}  // namespace tutti::tuner_nccl
