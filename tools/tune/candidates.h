// SPDX-License-Identifier: Apache-2.0
// The candidates of the loaded plugins for a collective, and the settings that force a communicator to run one of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/tune/request.h"

namespace tutti::tune {

/// One algorithm variant with one protocol.
struct Candidate {
  std::string algorithm;
  std::string variant;  ///< empty where the algorithm has but a nameless one
  bool only_variant = false;
  std::string protocol;
  uint64_t collectives = 0;  ///< bits 1 << Collective
  size_t min_bytes = 0;      ///< from here to max_bytes it may win
  size_t max_bytes = SIZE_MAX;
  bool registered = false;  ///< measured with registered buffers
  /// Measured again with registered buffers, since the kernels then do different work.
  bool differs_registered = false;

  bool offers(Collective collective) const { return (collectives >> static_cast<uint32_t>(collective) & 1) != 0; }
  /// As rules call it.
  std::string rule_name() const { return only_variant ? algorithm : algorithm + "/" + variant; }
  /// "direct/two-shot × ll".
  std::string text() const { return rule_name() + " × " + protocol; }
  /// As reports call it: unlike any other.
  std::string label() const { return text() + (registered ? " (registered)" : ""); }
};

/// The loaded plugins, and the description of this machine in the table.
struct Offer {
  std::vector<Candidate> candidates;
  bool over_network = false;  ///< ranks of one host count as nodes
};
Result<Offer> list_candidates(const Request& request);

/// A job's configuration file that forces `candidate` on `collectives`; gone with this object.
class ForcingFile {
 public:
  static Result<ForcingFile> write(const Request& request, const Candidate& candidate, uint32_t channels,
                                   const std::vector<std::string>& collectives);
  ForcingFile(ForcingFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ForcingFile(const ForcingFile&) = delete;
  ForcingFile& operator=(const ForcingFile&) = delete;
  ForcingFile& operator=(ForcingFile&&) = delete;
  ~ForcingFile() { remove(); }

  /// When communicators have read it: a rank that is killed later leaves nothing.
  void remove();

  const std::string& path() const { return path_; }

 private:
  explicit ForcingFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace tutti::tune
