// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/candidates.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "backend/registrations.h"
#include "base/file.h"
#include "communicator/setup/choices.h"
#include "config/config.h"

namespace tutti::tune {
namespace {

// A protocol that sends only the payload pays for it with latency. A protocol that sends much more has flags in the
// data. Neither can win in the sizes of the other.
constexpr double kBandwidthEfficiency = 0.99;
constexpr double kLatencyEfficiency = 0.6;
constexpr size_t kBandwidthMinBytes = size_t{4} << 10;
constexpr size_t kLatencyMaxBytes = size_t{4} << 20;

/// The job's own file: the configuration of every communicator beside the forced settings.
std::string base_file(const Request& request) {
  if (!request.bench.session.config_file.empty()) return request.bench.session.config_file;
  for (const auto& [name, value] : config::process_environment()) {
    if (name == "TUTTI_CONFIG") return value;
  }
  return {};
}

Result<config::Config> load_config(const Request& request) {
  return tools::load_config(base_file(request), request.bench.session.options(0).settings);
}

void limit_sizes(const tutti_protocol_properties& properties, uint32_t link, Candidate& candidate) {
  const double efficiency = properties.efficiency[link];
  if (efficiency >= kBandwidthEfficiency) candidate.min_bytes = kBandwidthMinBytes;
  if (efficiency > 0 && efficiency <= kLatencyEfficiency) candidate.max_bytes = kLatencyMaxBytes;
}

/// The candidate with registered buffers, for collectives in which they can make a difference.
Candidate registered_twin(Candidate candidate) {
  candidate.registered = true;
  for (uint32_t c = 0; c < TUTTI_COLLECTIVE_COUNT; ++c) {
    if (!backend::has_registrable_output(static_cast<Collective>(c))) candidate.collectives &= ~(uint64_t{1} << c);
  }
  return candidate;
}

/// Every variant, with no protocol yet.
std::vector<Candidate> variants_of(const program::AlgorithmPlugin& plugin) {
  std::vector<Candidate> variants;
  tutti_str name{};
  Candidate candidate;
  candidate.algorithm = plugin.name;
  for (uint32_t v = 0; plugin.ops->variant(plugin.self, v, &name, &candidate.collectives) == TUTTI_OK; ++v) {
    candidate.variant.assign(name.data, name.size);
    variants.push_back(candidate);
  }
  for (Candidate& variant : variants) variant.only_variant = variants.size() == 1;
  return variants;
}

}  // namespace

Result<Offer> list_candidates(const Request& request) {
  TUTTI_ASSIGN(config::Config config, load_config(request));
  TUTTI_ASSIGN(const auto registry, plugin::Registry::load(config, false));
  TUTTI_ASSIGN(const auto protocols, communicator::protocols_of(*registry));
  const bool cuda = request.bench.device == bench::Device::kCuda;
  Offer offer;
  offer.over_network = config.text("transport") == "net";
  for (const program::AlgorithmPlugin& algorithm : communicator::algorithms_of(*registry)) {
    for (Candidate candidate : variants_of(algorithm)) {
      for (const tuner::Protocol& protocol : protocols) {
        if ((protocol.properties.devices & (cuda ? TUTTI_DEVICE_CUDA : TUTTI_DEVICE_HOST)) == 0) continue;
        candidate.registered = protocol.properties.needs_registered != 0;
        if (candidate.registered && !request.bench.registered) continue;
        candidate.differs_registered = protocol.properties.direct_store != 0 && request.bench.registered;
        candidate.protocol = protocol.name;
        candidate.min_bytes = 0;
        candidate.max_bytes = SIZE_MAX;
        if (protocols.size() > 1) limit_sizes(protocol.properties, cuda ? TUTTI_LINK_P2P : TUTTI_LINK_SHM, candidate);
        offer.candidates.push_back(candidate);
        if (candidate.differs_registered) offer.candidates.push_back(registered_twin(candidate));
      }
    }
  }
  if (offer.candidates.empty()) {
    return Status(Code::kUnsupported,
                  fmt::format("no loaded protocol runs on device '{}', so there is nothing to measure; name a "
                              "protocol of this device in plugins.protocol, or use the plugins of a build with CUDA",
                              cuda ? "cuda" : "host"));
  }
  return offer;
}

Result<ForcingFile> ForcingFile::write(const Request& request, const Candidate& candidate, uint32_t channels,
                                       const std::vector<std::string>& collectives) {
  std::stringstream text;
  if (const std::string base = base_file(request); !base.empty()) {
    TUTTI_ASSIGN(const config::Node root, config::read_file(base));
    const auto is_rules = [](const config::Node& child) { return child.key == "rules"; };
    if (std::any_of(root.children.begin(), root.children.end(), is_rules)) {
      return Status(Code::kConfig,
                    base + ": rules would forbid what is to be measured; tune with a file without rules");
    }
    text << std::ifstream(base).rdbuf() << '\n';
  }
  text << "rules:\n";
  for (const std::string& collective : collectives) {
    text << fmt::format("  - match: {{collective: {}}}\n    choose: {{algorithm: {}, protocol: {}, channels: {}}}\n",
                        collective, candidate.rule_name(), candidate.protocol, channels);
  }
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "tutti-tune-XXXXXX").string();
  const base::Fd made(::mkostemp(path.data(), O_CLOEXEC));
  if (!made.valid()) {
    return Status(Code::kSystem,
                  fmt::format("cannot write {}: {}; set TMPDIR", path, std::generic_category().message(errno)));
  }
  ForcingFile file(path);
  TUTTI_TRY(base::write_all(made, text.str(), path));
  return file;
}

void ForcingFile::remove() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove(std::exchange(path_, {}), error);
}

}  // namespace tutti::tune
