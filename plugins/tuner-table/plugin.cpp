// SPDX-License-Identifier: Apache-2.0
// A tuner that follows measurements, and the model for calls without measurements.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "alpha_beta/settings.h"
#include "table.h"
#include "tutti/sdk/tuner.h"

namespace tutti::tuner_table {
namespace {

constexpr double kBehind = 1.001;  ///< the predicted time of all other candidates is longer by at least this factor

/// Says it once in this process: its ranks, and its later communicators, have no more to say.
void warn_once(const sdk::Host& host, const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::scoped_lock lock(mutex);
  if (said.insert(text).second) host.log(TUTTI_LOG_WARN, text);
}

using SharedTable = std::shared_ptr<const Table>;

/// The table of a text. Equal texts of a file are read once in this process: a process whose threads are many ranks
/// would else spend most of their start here.
Result<SharedTable> table_of(std::string text, const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::pair<std::string, SharedTable>> known;  // by path: a text and its table
  const std::scoped_lock lock(mutex);
  if (const auto found = known.find(path); found != known.end() && found->second.first == text)
    return found->second.second;
  TUTTI_ASSIGN(Table table, read_table(text, path));
  auto shared = std::make_shared<const Table>(std::move(table));
  known[path] = {std::move(text), shared};
  return shared;
}

class Follower : public sdk::TunerInstance {
 public:
  Follower(const sdk::Host& host, const alpha_beta::Model& model, SharedTable table)
      : host_(host), model_(model), table_(std::move(table)) {}

  Status choose(const tutti_call& call, const sdk::Candidates& candidates) const override {
    for (tutti_candidate& candidate : candidates) model_.predict(call, candidate);
    const Entry* entry = table_->find(call.collective, call.block_bytes * call.blocks, call.registered != 0);
    if (entry == nullptr) return {};
    const auto names_it = [&](const tutti_candidate& candidate) { return is(*entry, candidate); };
    const auto named = std::find_if(candidates.begin(), candidates.end(), names_it);
    if (named == candidates.end()) {
      warn_once(host_, "the table chooses " + name_of(*entry) + " with " + entry->protocol +
                           ", which is not loaded, or does not offer the call; the model chooses instead");
    } else if ((*named).predicted_us >= 0) {
      prefer(*entry, *named, candidates);
    }
    return {};
  }

 private:
  static std::string name_of(const Entry& entry) {
    return entry.variant.empty() ? entry.algorithm : entry.algorithm + "/" + entry.variant;
  }

  static bool is(const Entry& entry, const tutti_candidate& candidate) {
    return entry.algorithm == sdk::view(candidate.algorithm) && entry.protocol == sdk::view(candidate.protocol) &&
           entry.variant == sdk::view(candidate.variant);
  }

  /// A measurement without registered buffers says nothing about candidates that need them.
  static void prefer(const Entry& entry, tutti_candidate& chosen, const sdk::Candidates& candidates) {
    for (tutti_candidate& candidate : candidates) {
      if (candidate.predicted_us < 0 || (candidate.needs_registered != 0 && !entry.registered)) continue;
      candidate.predicted_us = std::max(candidate.predicted_us, entry.measured_us * kBehind);
    }
    chosen.predicted_us = entry.measured_us;
    chosen.channels = std::clamp(entry.channels, 1u, chosen.max_channels);
  }

  sdk::Host host_;
  alpha_beta::Model model_;
  SharedTable table_;
};

class Tuner : public sdk::Tuner {
 public:
  static std::vector<tutti_config_key> settings() {
    auto keys = alpha_beta::model_settings();
    keys.push_back(sdk::setting(TUTTI_CONFIG_TEXT, "file", "auto",
                                "table made by 'tutti tune': a path, or a name in share/tutti/tuned; auto: the one "
                                "there that holds for the job, if any; empty: none"));
    return keys;
  }

  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& topology) override {
    TUTTI_ASSIGN(SharedTable table, table_for(topology));
    const alpha_beta::Model model(alpha_beta::constants_of(host()), topology);
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Follower>(host(), model, std::move(table)));
  }

 private:
  /// The table that the setting names if it holds, else an empty table.
  Result<SharedTable> table_for(const tutti_topology& topology) const {
    const std::string name = host().text("file");
    if (name.empty()) return std::make_shared<const Table>();
    if (name == "auto") return shipped_table(topology);
    TUTTI_ASSIGN(const std::string path, find_file(name));
    TUTTI_ASSIGN(SharedTable table, read_file(path));
    const std::string differs = difference(table->conditions, conditions_of(topology));
    if (!differs.empty()) {
      warn_once(host(), path + " was measured elsewhere and is ignored (" + differs +
                            "): the model chooses; make a table for this job with 'tutti tune'");
      return std::make_shared<const Table>();
    }
    if (table->is_empty()) {
      warn_once(host(), path +
                            " has no entries, because 'tutti tune' measured nothing: the model chooses; the head of "
                            "the file has the reason");
    }
    check_channels(*table, path, topology);
    return table;
  }

  /// The first shipped table that holds here. If there is none, this is no mistake.
  Result<SharedTable> shipped_table(const tutti_topology& topology) const {
    for (const std::string& path : shipped_files()) {
      Result<SharedTable> table = read_file(path);
      if (!table.ok()) {
        warn_once(host(), "a table is left out: " + std::string(table.status().text()));
        continue;
      }
      if (!difference((*table)->conditions, conditions_of(topology)).empty()) continue;
      host().log(TUTTI_LOG_INFO, "follows " + path);
      check_channels(**table, path, topology);
      return table;
    }
    host().log(TUTTI_LOG_INFO, "no table that is shipped holds here: the model chooses; 'tutti tune' makes one");
    return std::make_shared<const Table>();
  }

  static Result<SharedTable> read_file(const std::string& path) {
    std::stringstream text;
    if (!(text << std::ifstream(path).rdbuf())) {
      return Status(Code::kConfig, path + ": is empty or cannot be read; make it with 'tutti tune --out FILE'");
    }
    return table_of(text.str(), path);
  }

  void check_channels(const Table& table, const std::string& path, const tutti_topology& topology) const {
    if (table.most_channels() <= topology.max_channels) return;
    warn_once(host(), path + " uses up to " + std::to_string(table.most_channels()) + " channels, this job has " +
                          std::to_string(topology.max_channels) + " at most; set channels to as many");
  }
};

}  // namespace
}  // namespace tutti::tuner_table

TUTTI_PLUGIN(tutti::tuner_table::Tuner, "table", "0.1.0", "follows a table of measurements, else the model")
