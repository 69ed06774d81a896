// SPDX-License-Identifier: Apache-2.0
// Times the collectives of Gloo over TCP. The ranks are processes of this machine on the loopback interface. With
// --rank this process is one of the ranks, and the other ranks are started elsewhere with the same --store.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "peer_timing.h"

namespace {

using Reduction = void (*)(void*, const void*, const void*, size_t);

class GlooPeer final : public peer::Peer {
 public:
  GlooPeer(int rank, int ranks, const std::string& address, const std::string& store_folder) {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
    gloo::rendezvous::FileStore store(store_folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  const char* library() const override { return "gloo"; }
  int rank() const override { return context_->rank; }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    options.setTag(++tag_);
    gloo::barrier(options);
  }

  double maximum_over_ranks(double value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction(static_cast<Reduction>(&gloo::max<double>));
    options.setTag(++tag_);
    gloo::allreduce(options);
    return value;
  }

  std::function<void()> bind(const std::string& collective, std::vector<float>& input,
                             std::vector<float>& output) override {
    const auto with_input = [&](auto& options) { options.setInput(input.data(), input.size()); };
    const auto with_sum = [&](auto& options) {
      with_input(options);
      options.setReduceFunction(static_cast<Reduction>(&gloo::sum<float>));
    };
    const auto with_root = [&](auto& options) {
      with_sum(options);
      options.setRoot(0);
    };
    if (collective == "all_reduce") return repeat<gloo::AllreduceOptions>(output, with_sum, gloo::allreduce);
    if (collective == "all_gather") return repeat<gloo::AllgatherOptions>(output, with_input, gloo::allgather);
    if (collective == "all_to_all") return repeat<gloo::AlltoallOptions>(output, with_input, gloo::alltoall);
    if (collective == "reduce") return repeat<gloo::ReduceOptions>(output, with_root, gloo::reduce);
    if (collective == "broadcast") {
      if (rank() == 0) output = input;  // Gloo accepts an input on the root only
      return repeat<gloo::BroadcastOptions>(
          output, [](auto& options) { options.setRoot(0); }, gloo::broadcast);
    }
    return {};
  }

 private:
  /// Registers the output once; each call runs the collective under a tag of its own.
  template <class Options, class Prepare, class Run>
  std::function<void()> repeat(std::vector<float>& output, Prepare prepare, Run run) {
    auto options = std::make_shared<Options>(context_);
    options->setOutput(output.data(), output.size());
    prepare(*options);
    return [this, options, run] {
      options->setTag(++tag_);
      run(*options);
    };
  }

  std::shared_ptr<gloo::Context> context_;
  uint32_t tag_ = 0;
};

struct RankOptions {
  int rank = -1;
  std::string address = "127.0.0.1";
  std::string store_folder;
};

int run_rank(const RankOptions& rank_options, const peer::Settings& settings) {
  try {
    GlooPeer peer(rank_options.rank, settings.ranks, rank_options.address, rank_options.store_folder);
    return peer::run_peer(peer, settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo, rank %d: %s\n", rank_options.rank, error.what());
    return 1;
  }
}

int run_all_ranks(RankOptions rank_options, const peer::Settings& settings) {
  rank_options.store_folder = (std::filesystem::temp_directory_path() / "gloo_peer_XXXXXX").string();
  if (mkdtemp(rank_options.store_folder.data()) == nullptr) {
    std::perror(rank_options.store_folder.c_str());
    return 1;
  }
  for (rank_options.rank = 0; rank_options.rank < settings.ranks; ++rank_options.rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the program
    _exit(run_rank(rank_options, settings));
  }
  int code = 0;
  for (int status = 0; code == 0 && wait(&status) > 0;) {
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;  // one failed rank ends the run: the others wait for it
  }
  std::filesystem::remove_all(rank_options.store_folder);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the collectives of Gloo");
  peer::Settings settings;
  RankOptions rank_options;
  peer::add_options(app, settings);
  auto* rank = app.add_option("--rank", rank_options.rank, "this process is that rank")->check(CLI::NonNegativeNumber);
  auto* store =
      app.add_option("--store", rank_options.store_folder, "a folder that all ranks share, empty at the start");
  app.add_option("--address", rank_options.address, "of the own interface (default 127.0.0.1)");
  rank->needs(store);
  store->needs(rank);
  CLI11_PARSE(app, argc, argv);
  return rank_options.rank < 0 ? run_all_ranks(rank_options, settings) : run_rank(rank_options, settings);
}
