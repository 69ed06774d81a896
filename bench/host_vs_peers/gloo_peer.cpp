// SPDX-License-Identifier: Apache-2.0
// Times the collectives of Gloo between processes of this machine, over TCP on the loopback interface.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
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
  GlooPeer(int rank, int ranks, const std::string& store_folder) {
    gloo::transport::tcp::attr address("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(address);
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

int run_rank(int rank, const peer::Settings& settings, const std::string& store_folder) {
  try {
    GlooPeer peer(rank, settings.ranks, store_folder);
    return peer::run_peer(peer, settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo, rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the collectives of Gloo");
  peer::Settings settings;
  peer::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);

  std::string store_folder = (std::filesystem::temp_directory_path() / "gloo_peer_XXXXXX").string();
  if (mkdtemp(store_folder.data()) == nullptr) {
    std::perror(store_folder.c_str());
    return 1;
  }
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the program
    _exit(run_rank(rank, settings, store_folder));
  }
  int code = 0;
  for (int status = 0; code == 0 && wait(&status) > 0;) {
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;  // one failed rank ends the run: the others wait for it
  }
  std::filesystem::remove_all(store_folder);
  return code;
}
