// SPDX-License-Identifier: Apache-2.0
// `tutti explain`: the choice for a call, and the reasons against the remaining candidates.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "communicator/dry.h"
#include "tools/check/problem.h"
#include "tools/commands.h"
#include "tools/launch.h"
#include "tools/names.h"
#include "tools/session.h"
#if defined(TUTTI_HAS_CUDA)
#include "tools/bench/cuda/device.h"
#endif

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Makes the communicators that a job with these settings would make, with ranks as threads of this process, and asks the
selector that every call asks. With --topology the ranks are the GPUs of machines that a file describes: no GPU is
needed, and the limits of a job on GPUs count all the same. For host ranks in their place, set topology.host_ranks to
gpu.

Examples:
  tutti explain all_reduce --ranks 4 --size 1M
  tutti explain all_gather -n 8 --hosts a,b --size 64K --set protocol=simple
  tutti explain all_reduce --topology configs/topologies/hgx-h200.yaml --nodes 2
  tutti explain all_reduce --topology configs/topologies/hgx-h200.yaml --nodes 2 --set topology.host_ranks=gpu)";

struct Question {
  Session session;
  std::string collective;
  size_t bytes = size_t{1} << 20;
  std::string type = "float32";
  std::string op = "sum";
  std::string device = "host";
  bool registered = false;
  std::string topology;
  uint32_t nodes = 1;
};

/// The call of so many ranks that has `bytes` in its larger buffer.
check::Problem problem_of(const Question& question, int rank_count) {
  check::Problem problem;
  problem.collective = *collective_from(question.collective);
  problem.type = *data_type_from(question.type);
  problem.op = *reduce_op_from(question.op);
  problem.rank_count = rank_count;
  problem.count = 1;
  problem.count = std::max<size_t>(question.bytes / check::bytes_of(problem), 1);
  return problem;
}

/// The rank's options; its device becomes the calling thread's.
Result<Options> options_of(const Question& question, int rank) {
  Options options = question.session.options(rank);
  if (question.device == "host") return options;
  options.settings.emplace_back("device", question.device);
#if defined(TUTTI_HAS_CUDA)
  TUTTI_TRY(bench::cuda::select_device(rank).status());
  return options;
#else
  return Status(Code::kUnsupported,
                "--device: cuda is not in this build; configure it with TUTTI_CUDA=ON, or describe "
                "the machine with --topology");
#endif
}

void print(const check::Problem& problem, const std::string& verdicts) {
  fmt::print("{}, {} bytes\n{}{}", to_string(problem), check::bytes_of(problem), verdicts,
             verdicts.empty() || verdicts.back() != '\n' ? "\n" : "");
}

Status answer(const Question& question, const UniqueId& id, int rank) {
  const check::Problem problem = problem_of(question, question.session.rank_count);
  TUTTI_ASSIGN(const Options options, options_of(question, rank));
  TUTTI_ASSIGN(auto communicator, Communicator::create(id, rank, problem.rank_count, options));
  if (rank == 0) {
    TUTTI_ASSIGN(const std::string text, communicator.explain(problem.collective, problem.count, problem.type,
                                                              problem.op, question.registered));
    print(problem, text);
  }
  return {};
}

/// For the machines of a file, without their devices.
Status answer_dry(const Question& question) {
  communicator::DryCommunicator::Options options;
  TUTTI_ASSIGN(options.machine, topology::Document::load(question.topology));
  options.node_count = question.nodes;
  if (question.session.has_rank_count) options.ranks_here = static_cast<uint32_t>(question.session.rank_count);
  TUTTI_ASSIGN(options.config, load_config(question.session.config_file, split_settings(question.session.settings)));
  TUTTI_ASSIGN(const auto cluster, communicator::DryCommunicator::create(std::move(options)));
  const check::Problem problem = problem_of(question, static_cast<int>(cluster->rank_count()));
  TUTTI_ASSIGN(const std::string text, cluster->selector().explain({problem.collective, problem.type, problem.op,
                                                                    problem.count, question.registered}));
  print(problem, text);
  if (const Status takes = cluster->takes(); !takes.ok()) fmt::print("limits: {}\n", takes.text());
  return {};
}

/// Ranks are threads of this process.
Status check_rank_count(const Session& session) {
  constexpr int kMost = 1024;
  if (session.rank_count <= kMost) return {};
  return {Code::kInvalidArgument,
          fmt::format("--ranks: {} ranks are too many for one process, which takes {}; describe "
                      "the machines with --topology and --nodes",
                      session.rank_count, kMost)};
}

int run(const Question& question) {
  if (!question.topology.empty()) {
    const Status status = answer_dry(question);
    return status.ok() ? kSuccess : fail(status);
  }
  if (const Status few = check_rank_count(question.session); !few.ok()) return fail(few);
  return run_as_threads(question.session, [&](const UniqueId& id, int rank) -> Result<int> {
    TUTTI_TRY(answer(question, id, rank));
    return kSuccess;
  });
}

}  // namespace

void add_explain(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("explain", "Say what would run a call, and why");
  command->footer(kFooter);
  const auto question = std::make_shared<Question>();
  command->add_option("collective", question->collective, "The collective")
      ->required()
      ->check(one_of(all_names<Collective>()))
      ->option_text("COLLECTIVE");
  question->session.add_options(*command);
  command->add_option("-s,--size", question->bytes, "Size of the larger buffer (default 1M)")
      ->transform(kSize)
      ->option_text("SIZE");
  command->add_option("-t,--type", question->type, "Data type (default float32)")
      ->check(one_of(all_names<DataType>()))
      ->option_text("TYPE");
  command->add_option("-o,--op", question->op, "Reduction (default sum)")
      ->check(one_of(all_names<ReduceOp>()))
      ->option_text("OP");
  command
      ->add_option("--device", question->device,
                   "Where buffers are: host (default) or cuda; rank r has device r mod devices")
      ->check(one_of({"host", "cuda"}))
      ->option_text("host|cuda");
  command->add_flag("--register", question->registered, "With cuda: for outputs in registered buffers");
  CLI::Option* topology =
      command
          ->add_option("--topology", question->topology,
                       "For a machine: NCCL's XML, or our YAML; --ranks: ranks of each machine (default: its GPUs)")
          ->option_text("FILE");
  topology->excludes("--hosts", "--device");
  command->add_option("--nodes", question->nodes, "--topology: number of such machines (default 1)")
      ->check(CLI::Range(1, 1 << 20))
      ->needs(topology)
      ->option_text("N");
  command->callback([question, &exit_code] {
    const Status checked = question->session.check();
    exit_code = checked.ok() ? run(*question) : fail(checked);
  });
}

}  // namespace tutti::tools
