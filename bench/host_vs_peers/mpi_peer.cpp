// SPDX-License-Identifier: Apache-2.0
// Times the collectives of MPI. Run under mpirun, which sets the number of ranks.
#include <mpi.h>

#include "peer_timing.h"

namespace {

class MpiPeer final : public peer::Peer {
 public:
  MpiPeer() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  const char* library() const override { return "openmpi"; }
  int rank() const override { return rank_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  double maximum_over_ranks(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }

  std::function<void()> bind(const std::string& collective, std::vector<float>& input,
                             std::vector<float>& output) override {
    const float* in = input.data();
    float* out = output.data();
    const int in_count = static_cast<int>(input.size());
    const int out_count = static_cast<int>(output.size());
    if (collective == "all_reduce") {
      return [=] { MPI_Allreduce(in, out, in_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (collective == "all_gather") {
      return [=] { MPI_Allgather(in, in_count, MPI_FLOAT, out, in_count, MPI_FLOAT, MPI_COMM_WORLD); };
    }
    if (collective == "reduce_scatter") {
      return [=] { MPI_Reduce_scatter_block(in, out, out_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (collective == "reduce") {
      return [=] { MPI_Reduce(in, out, in_count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); };
    }
    if (collective == "broadcast") {
      if (rank_ == 0) output = input;  // MPI broadcasts in place
      return [=] { MPI_Bcast(out, out_count, MPI_FLOAT, 0, MPI_COMM_WORLD); };
    }
    if (collective == "all_to_all") {
      const int block = in_count / ranks_;
      return [=] { MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD); };
    }
    return {};
  }

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  CLI::App app("Times the collectives of MPI");
  peer::Settings settings;
  peer::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  MPI_Comm_size(MPI_COMM_WORLD, &settings.ranks);

  MpiPeer peer;
  const int code = peer::run_peer(peer, settings);
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);  // the other ranks may wait for this one
  MPI_Finalize();
  return code;
}
