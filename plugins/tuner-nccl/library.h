// SPDX-License-Identifier: Apache-2.0
// A loaded file with an NCCL tuner plugin.
#pragma once

#include <memory>
#include <string>

#include "cost_table.h"
#include "nccl_plugins/file.h"
#include "nccl_plugins/log.h"
#include "tables.h"
#include "tutti/plugin/topology.h"
#include "tutti/status.h"

namespace tutti::tuner_nccl {

/// A collective call as NCCL's plugins see it.
struct Question {
  int function;  ///< of ncclFunc_t
  size_t bytes;  ///< of the larger buffer of a rank
  bool registered;
};

/// Threads: any thread, and one thread at a time per context. The file stays loaded, since the plugin's own threads may
/// run in it.
class Library {
 public:
  /// `named`: a path, a file name "lib....so", or NAME for libnccl-tuner-NAME.so.
  static Result<Library> load(const std::string& named);

  /// "'example' (/opt/x/libnccl-tuner-x.so, ncclTunerPlugin_v5)".
  std::string place() const;

  /// Begins a communicator. `context` may stay null.
  Status begin(const nccl_plugins::Sink& sink, const tutti_topology& topology, void** context) const;
  void end(const nccl_plugins::Sink& sink, void* context) const;

  /// Lets the plugin change the costs of a call. `channels` stays 0 if the plugin names no channels.
  Status choose(const nccl_plugins::Sink& sink, void* context, const Question& question, CostTable& costs,
                int& channels) const;

 private:
  explicit Library(nccl_plugins::PluginFile file) : file_(std::move(file)) {}
  const Table& table() const { return *static_cast<const Table*>(file_.table); }
  int choose_one(void* context, const Question& question, CostTable& costs, int& channels) const;
  Status failure(const char* entry, int nccl_code) const;

  nccl_plugins::PluginFile file_;
};

}  // namespace tutti::tuner_nccl
