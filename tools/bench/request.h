// SPDX-License-Identifier: Apache-2.0
// The command line of `tutti bench` as data.
#pragma once

#include <optional>

#include "tools/check/problem.h"
#include "tools/session.h"
#include "tools/ssh.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::bench {

enum class Placement { kOut, kIn, kBoth };
enum class Device { kHost, kCuda };

struct Request {
  std::string name = "all_reduce";  ///< as the tables call it: a collective, or all_to_all_v
  tools::Session session;

  // The ranks.
  bool threads = false;
  std::string id;  ///< "host:port:secret"; with `rank`: this process is one rank of a launch by hand
  int rank = -1;
  tools::SshJob ssh;  ///< without hosts: ssh starts no ranks
  int ssh_rank = -1;  ///< this process is that rank of a job that ssh started

  // Where. On devices, the ranks tell each other facts by a communicator in host memory.
  Device device = Device::kHost;
  std::string library;      ///< measured instead of Tutti: a library with NCCL's API, as dlopen takes it
  std::string compare;      ///< measured besides
  bool graph = false;       ///< calls are captured into CUDA graphs, of which replays are timed
  int group = 1;            ///< calls of one group; 1: no groups
  bool launch = false;      ///< measures the time of the CPU that enqueues a call
  bool registered = false;  ///< the measured library registers its buffers
  int blocks = 0;           ///< thread blocks of a call at most; 0: as many as the library likes

  // The calls: every type × operator × size.
  size_t min_bytes = 8;
  size_t max_bytes = size_t{64} << 20;
  size_t factor = 4;
  size_t step = 0;  ///< bytes; 0: sizes grow by `factor`
  std::vector<DataType> types;
  std::vector<ReduceOp> ops;
  int root = 0;
  Placement placement = Placement::kBoth;

  // How it is timed.
  std::optional<int> warmup;  ///< calls before the first batch; none: as many as the measurement likes
  bool barrier = false;       ///< a barrier before each call; the time of the barriers does not count
  int iterations = 0;         ///< calls of one batch; 0: as many as fill batch_us
  double batch_us = 20'000;
  int batches = 5;
  bool check = true;
  size_t checked_bytes = size_t{64} << 20;  ///< on devices: of calls with more, windows are checked
  uint64_t seed = 0;

  // The outputs.
  std::optional<std::string> json;  ///< a file, "-" for standard output
  bool csv = false;
  bool verbose = false;

  /// Every call to measure, in the order of the table's rows.
  std::vector<check::Problem> problems() const;
};

/// Declares the options of `command`. After parsing, `finish` completes the request; it throws CLI::ValidationError
/// when options contradict each other.
class RequestOptions {
 public:
  explicit RequestOptions(CLI::App& command);
  Request finish() const;

 private:
  void add_work_options(CLI::App& command);
  void add_timing_options(CLI::App& command);
  void add_device_options(CLI::App& command);
  void add_launch_options(CLI::App& command);
  void add_output_options(CLI::App& command);

  std::string read_id() const;
  void finish_ssh(Request& request) const;

  Request request_;
  std::string id_file_;
  std::string hostfile_;
  std::string ssh_program_ = "ssh";
  std::string id_of_command_line_;
  std::vector<std::string> types_ = {"float32"};
  std::vector<std::string> ops_ = {"sum"};
  std::string placement_ = "both";
  std::string device_;
  bool no_check_ = false;
  CLI::Option* json_ = nullptr;
  std::string json_file_ = "-";
};

}  // namespace tutti::bench
