// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "base/file.h"
#include "tools/names.h"

namespace tutti::bench {
namespace {

using tools::all_names;
using tools::one_of;

constexpr const char* kAllToAllV = "all_to_all_v";
constexpr const char* kAll = "all";

std::vector<std::string> with(std::vector<std::string> names, std::initializer_list<const char*> more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

template <class Enum>
std::vector<Enum> values_of(const std::vector<std::string>& names) {
  const auto known = all_names<Enum>();
  std::vector<Enum> values;
  for (uint32_t i = 0; i < known.size(); ++i) {
    const auto wanted = [&](const std::string& name) { return name == kAll || name == known[i]; };
    if (std::any_of(names.begin(), names.end(), wanted)) values.push_back(static_cast<Enum>(i));
  }
  return values;
}

void demand(bool condition, const char* option, const std::string& text) {
  if (!condition) throw CLI::ValidationError(option, text);
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

/// The arguments of this process for ranks on other hosts: without the options that say how the ranks start.
std::vector<std::string> arguments_for_ranks(int rank_count) {
  std::ifstream own("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::string word;
  std::getline(own, word, '\0');  // the program
  while (std::getline(own, word, '\0')) {
    const bool has_value = word == "--ssh" || word == "--ssh-program" || word == "--ranks" || word == "-n";
    if (has_value) {
      std::getline(own, word, '\0');
    } else if (!word.starts_with("--ssh=") && !word.starts_with("--ssh-program=") && !word.starts_with("--ranks=") &&
               !word.starts_with("-n")) {
      arguments.push_back(word);
    }
  }
  arguments.insert(arguments.end(), {"--ranks", std::to_string(rank_count)});
  return arguments;
}

}  // namespace

std::vector<check::Problem> Request::problems() const {
  check::Problem problem;
  problem.uneven = name == kAllToAllV;
  problem.collective = problem.uneven ? Collective::kAllToAll : *collective_from(name);
  problem.rank_count = session.rank_count;
  problem.root = root;
  const bool reduces = check::reduces(problem.collective);
  std::vector<check::Problem> problems;
  for (const DataType type : types) {
    for (const ReduceOp op : reduces ? ops : std::vector{ReduceOp::kSum}) {
      problem.type = type;
      problem.op = op;
      problem.count = 0;
      for (size_t bytes = min_bytes; bytes <= max_bytes; bytes = step > 0 ? bytes + step : bytes * factor) {
        const size_t before = std::exchange(problem.count, 1);
        problem.count = std::max<size_t>(bytes / check::bytes_of(problem), 1);
        problem.seed = seed + problems.size();
        if (problem.count != before) problems.push_back(problem);
      }
    }
  }
  return problems;
}

RequestOptions::RequestOptions(CLI::App& command) {
  const auto collectives = with(all_names<Collective>(), {kAllToAllV, "sendrecv"});
  command.add_option("collective", request_.name, "What to run: " + fmt::format("{}", fmt::join(collectives, ", ")))
      ->check(one_of(collectives))
      ->required()
      ->option_text("COLLECTIVE");
  request_.session.add_options(command);
  add_work_options(command);
  add_timing_options(command);
  add_device_options(command);
  add_launch_options(command);
  add_output_options(command);
}

void RequestOptions::add_work_options(CLI::App& command) {
  const auto size = [&](const std::string& name, size_t& value, const std::string& text) {
    command.add_option(name, value, text)->transform(tools::kSize)->option_text("SIZE")->group("Work");
  };
  size("-b,--min", request_.min_bytes, "Smallest size, of the larger buffer (default 8)");
  size("-e,--max", request_.max_bytes, "Largest size (default 64M)");
  command.add_option("-f,--factor", request_.factor, "From one size to the next (default 4)")
      ->check(CLI::Range(2, 1 << 20))
      ->option_text("N")
      ->group("Work");
  size("--step", request_.step, "From one size to the next, in bytes: instead of --factor");
  command.add_option("-t,--type", types_, "Data types: float32,bfloat16 or all (default float32)")
      ->delimiter(',')
      ->check(one_of(with(all_names<DataType>(), {kAll})))
      ->option_text("TYPE,...")
      ->group("Work");
  command.add_option("-o,--op", ops_, "Reductions: sum,max or all (default sum)")
      ->delimiter(',')
      ->check(one_of(with(all_names<ReduceOp>(), {kAll})))
      ->option_text("OP,...")
      ->group("Work");
  command.add_option("-r,--root", request_.root, "Root of a rooted collective (default 0)")
      ->check(tools::kFromZero)
      ->option_text("RANK")
      ->group("Work");
  command.add_option("--in-place", placement_, "In place, where the collective can: only, both (default) or no")
      ->check(one_of({"only", "both", "no"}))
      ->option_text("only|both|no")
      ->group("Work");
}

void RequestOptions::add_timing_options(CLI::App& command) {
  command.add_option("--iters", request_.iterations, "Calls of one timed batch (default: as many as take 20 ms)")
      ->check(tools::kFromOne)
      ->option_text("N")
      ->group("Timing and check");
  command.add_option("--repeat", request_.batches, "Batches, of which the median counts (default 5)")
      ->check(tools::kFromOne)
      ->option_text("N")
      ->group("Timing and check");
  command
      .add_option("--warmup", request_.warmup,
                  "Calls before the first batch (default: 3 on GPUs or with --iters, else "
                  "200, or as many as take 500 ms)")
      ->check(tools::kFromOne)
      ->option_text("N")
      ->group("Timing and check");
  command
      .add_flag("--barrier", request_.barrier,
                "In host memory: a barrier before each call, so that calls do not overlap; the time of the barriers is "
                "subtracted")
      ->group("Timing and check");
  command.add_flag("--no-check", no_check_, "Do not check results")->group("Timing and check");
  command.add_option("--seed", request_.seed, "Of the random inputs (default: a new one)")
      ->option_text("N")
      ->group("Timing and check");
}

void RequestOptions::add_device_options(CLI::App& command) {
  command
      .add_option("--device", device_,
                  "Where buffers are: host or cuda (default: the setting device); rank r has device r mod devices")
      ->check(one_of({"host", "cuda"}))
      ->option_text("host|cuda")
      ->group("Device");
  command.add_option("--library", request_.library, "With cuda: measure this library with NCCL's API instead of Tutti")
      ->option_text("PATH")
      ->group("Device");
  command.add_option("--compare", request_.compare, "With cuda: measure this library too, batches in turn")
      ->option_text("PATH")
      ->group("Device");
  command.add_flag("--graph", request_.graph, "With cuda: time replays of CUDA graphs of up to 20 calls")
      ->group("Device");
  command.add_option("--group", request_.group, "With cuda: make calls in groups of so many (default: no groups)")
      ->check(CLI::Range(1, 64))
      ->option_text("N")
      ->group("Device");
  command.add_flag("--launch", request_.launch, "With cuda: time the CPU that enqueues a call, not the device")
      ->group("Device");
  command
      .add_flag("--register", request_.registered,
                "With cuda: register the buffers; with another library as windows, in memory that it allocates")
      ->group("Device");
  command.add_option("--blocks", request_.blocks, "With cuda: thread blocks (SMs) of a collective at most")
      ->check(CLI::Range(1, 64))
      ->option_text("N")
      ->group("Device");
}

void RequestOptions::add_launch_options(CLI::App& command) {
  command.add_flag("--threads", request_.threads, "Ranks are threads of one process (default: processes)")
      ->group("Launch");
  command.add_option("--rank", request_.rank, "This process is that rank; the others are started elsewhere")
      ->check(tools::kFromZero)
      ->envname("TUTTI_RANK")
      ->option_text("RANK")
      ->group("Launch");
  command.get_option("--ranks")->envname("TUTTI_RANKS")->group("Launch");
  command.get_option("--hosts")->group("Launch");
  command
      .add_option("--id-file", id_file_, "With --rank: a file of 'tutti id', the same for all (or variable TUTTI_ID)")
      ->option_text("FILE")
      ->group("Launch");
  command
      .add_option("--ssh", hostfile_,
                  "Start the ranks by ssh on the hosts of a file: a line HOST [slots=N] for each host")
      ->option_text("HOSTFILE")
      ->group("Launch");
  command.add_option("--ssh-program", ssh_program_, "With --ssh: the command, with its options (default ssh)")
      ->envname("TUTTI_SSH")
      ->option_text("'ssh -p 2222'")
      ->group("Launch");
  command.add_option("--ssh-rank", request_.ssh_rank)->group("");  // of a rank that --ssh has started
  command.add_option("--id", id_of_command_line_)->group("");      // only refused: see read_id()
}

void RequestOptions::add_output_options(CLI::App& command) {
  json_ = command.add_option("--json", json_file_, "Write JSON to a file, or instead of the table")
              ->expected(0, 1)
              ->option_text("[FILE]")
              ->group("Output");
  command.add_flag("--csv", request_.csv, "Write CSV instead of the table")->group("Output");
  command.add_flag("-v,--verbose", request_.verbose, "Also say seed, start-up time, memory and predictions")
      ->group("Output");
}

/// The id of a file or of the environment; empty without both. All users of a machine can see command lines.
std::string RequestOptions::read_id() const {
  demand(id_of_command_line_.empty(), "--id",
         "would show the secret to all users of this machine; run 'tutti id --file FILE' and pass --id-file FILE, or "
         "set TUTTI_ID");
  if (id_file_.empty()) {
    const char* const text = secure_getenv("TUTTI_ID");
    return text == nullptr ? std::string() : std::string(text);
  }
  const auto text = base::read_secret(id_file_);
  demand(text.ok(), "--id-file", std::string(text.status().text()));
  return *text;
}

void RequestOptions::finish_ssh(Request& request) const {
  auto hosts = tools::read_hostfile(hostfile_);
  demand(hosts.ok(), "--ssh", hosts.ok() ? "" : std::string(hosts.status().text()));
  demand(request.rank < 0, "--ssh", "starts all ranks; it cannot be combined with --rank");
  demand(request.session.hosts.empty(), "--ssh", "names real hosts; it cannot be combined with --hosts");
  demand(!request.threads, "--threads", "cannot be combined with --ssh");
  tools::Session& session = request.session;
  if (!session.has_rank_count) session.rank_count = static_cast<int>(hosts->size());
  const auto ranks = static_cast<size_t>(session.rank_count);
  demand(ranks <= hosts->size(), "--ranks",
         fmt::format("is {}, and {} has {} slots; raise slots=N of a host", ranks, hostfile_, hosts->size()));
  hosts->resize(ranks);
  std::istringstream program(ssh_program_);
  request.ssh.program.assign(std::istream_iterator<std::string>(program), {});
  demand(!request.ssh.program.empty(), "--ssh-program", "names no command");
  request.ssh.hosts = *std::move(hosts);
  request.ssh.rank_option = "--ssh-rank";
  request.ssh.arguments = arguments_for_ranks(session.rank_count);
}

Request RequestOptions::finish() const {
  Request request = request_;
  const bool is_of_ssh = request.ssh_rank >= 0;
  if (!is_of_ssh) request.id = read_id();
  if (is_of_ssh) request.rank = -1;  // a variable of that host
  if (!hostfile_.empty() && !is_of_ssh) {
    finish_ssh(request);
  } else if (request.id.empty() && request.rank < 0 && !is_of_ssh) {
    const Status launched = request.session.ask_launcher();
    demand(launched.ok(), "--ranks", std::string(launched.text()));
  }
  const int ranks = request.session.rank_count;
  demand(request.min_bytes > 0, "--min", "must be at least 1");
  demand(request.min_bytes <= request.max_bytes, "--max", "is less than --min");
  demand(request.root < ranks, "--root", fmt::format("{} is no rank of {}", request.root, ranks));
  demand(request.rank < ranks, "--rank", fmt::format("{} is no rank of {}", request.rank, ranks));
  demand(request.ssh_rank < ranks, "--ssh-rank", fmt::format("{} is no rank of {}", request.ssh_rank, ranks));
  demand(request.rank < 0 || !request.id.empty(), "--rank",
         "a rank (--rank, TUTTI_RANK) needs an id; 'tutti id' makes an id for --id-file or TUTTI_ID");
  demand(request.rank >= 0 || request.id.empty(), "--rank",
         "an id (--id-file, TUTTI_ID) needs the number of this rank; pass --rank, or unset TUTTI_ID");
  demand(request.rank < 0 || !request.threads, "--threads", "cannot be combined with --rank");
  demand(!request.session.assignment || !request.threads, "--threads", "cannot be combined with a launcher");
  demand(request.session.hosts.size() <= static_cast<size_t>(ranks), "--hosts",
         "names more hosts than there are ranks");
  request.device = request.session.wants_cuda(device_) ? Device::kCuda : Device::kHost;
  const bool cuda = request.device == Device::kCuda;
  const Status runnable = tools::Session::check_cuda(cuda);
  demand(runnable.ok(), "--device", std::string(runnable.text()));
  demand(cuda || request.library.empty(), "--library", "needs --device cuda");
  demand(cuda || request.compare.empty(), "--compare", "needs --device cuda");
  demand(cuda || !request.graph, "--graph", "needs --device cuda");
  demand(!cuda || !request.barrier, "--barrier", "needs buffers in host memory (--device host)");
  demand(cuda || request.group == 1, "--group", "needs --device cuda");
  demand(cuda || !request.launch, "--launch", "needs --device cuda");
  demand(cuda || !request.registered, "--register", "needs --device cuda");
  demand(cuda || request.blocks == 0, "--blocks", "needs --device cuda");
  if (request.name == "sendrecv") request.name = to_string(Collective::kSendRecv);
  request.types = values_of<DataType>(types_);
  request.ops = values_of<ReduceOp>(ops_);
  request.placement = placement_ == "only" ? Placement::kIn : placement_ == "no" ? Placement::kOut : Placement::kBoth;
  demand(request.group == 1 || request.placement == Placement::kOut, "--group",
         "needs --in-place no: the calls of a group have the same buffers");
  if (request.blocks > 0) request.session.settings.push_back(fmt::format("channels={}", request.blocks));
  request.check = !no_check_;
  if (request.seed == 0) request.seed = random_seed();
  if (json_->count() > 0) request.json = json_file_.empty() ? "-" : json_file_;
  demand(!request.csv || request.json != "-", "--csv", "would mix with the output of --json; give --json a FILE");
  return request;
}

}  // namespace tutti::bench
