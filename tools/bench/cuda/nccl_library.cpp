// SPDX-License-Identifier: Apache-2.0
// A library with NCCL's C API. A collective without a call of its own is a group of sends and receives.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "tools/bench/cuda/device.h"
#include "tools/bench/cuda/nccl_api.h"
#include "tools/bench/exchange.h"
#include "tools/bench/library.h"

namespace tutti::bench {
namespace {

/// The range that goes to a peer or comes from it, in elements of the buffer.
struct Transfer {
  int peer;
  size_t offset;
  size_t count;
};

std::vector<Transfer> blocks_of_all(const check::Problem& problem, int rank, bool sent) {
  std::vector<Transfer> transfers;
  size_t offset = 0;
  for (int peer = 0; peer < problem.rank_count; ++peer) {
    const size_t count = sent ? block_elements(problem, rank, peer) : block_elements(problem, peer, rank);
    transfers.push_back({peer, offset, count});
    offset += count;
  }
  return transfers;
}

std::vector<Transfer> sends_of(const check::Problem& problem, int rank) {
  if (problem.collective == Collective::kAllToAll) return blocks_of_all(problem, rank, true);
  if (problem.collective == Collective::kScatter && rank == problem.root) return blocks_of_all(problem, rank, true);
  if (problem.collective == Collective::kGather) return {{problem.root, 0, problem.count}};
  if (problem.collective == Collective::kSendRecv) return {{(rank + 1) % problem.rank_count, 0, problem.count}};
  return {};
}

std::vector<Transfer> receives_of(const check::Problem& problem, int rank) {
  const int previous = (rank + problem.rank_count - 1) % problem.rank_count;
  if (problem.collective == Collective::kAllToAll) return blocks_of_all(problem, rank, false);
  if (problem.collective == Collective::kGather && rank == problem.root) return blocks_of_all(problem, rank, false);
  if (problem.collective == Collective::kScatter) return {{problem.root, 0, problem.count}};
  if (problem.collective == Collective::kSendRecv) return {{previous, 0, problem.count}};
  return {};
}

class NcclLibrary : public Library {
 public:
  NcclLibrary(nccl::Api api, nccl::Comm comm, int rank) : api_(std::move(api)), comm_(comm), rank_(rank) {}
  ~NcclLibrary() override {
    leave();
    for (void* const memory : memory_) api_.mem_free(memory);
  }
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  Result<std::byte*> take_registered(size_t bytes) override;
  Status prepare(const check::Problem& problem) override;
  Status run(const void* input, void* output, Stream stream) override;
  Status start_group() override { return api_.status(api_.group_start(), "ncclGroupStart", comm_); }
  Status end_group() override { return api_.status(api_.group_end(), "ncclGroupEnd", comm_); }
  Result<Ran> ran() const override { return Ran{facts().name + " " + facts().version, 0, 0}; }
  Status async_error() const override;
  void abort(std::string_view reason) override;
  LibraryFacts facts() const override {
    return {std::filesystem::path(api_.path).filename().string(), api_.version(), api_.path};
  }

 private:
  void leave();
  Result<std::byte*> allocate(size_t bytes);
  /// The operator of a pre-multiplied sum with this rank's factor.
  Result<nccl::Op> factor_op(DataType type);
  Status transfer(const void* input, void* output, nccl::Queue stream) const;
  nccl::Error enqueue(const void* input, void* output, nccl::Queue stream) const;

  nccl::Api api_;
  nccl::Comm comm_;  ///< null after an abort
  int rank_;
  check::Problem problem_;
  nccl::Type type_ = 0;
  nccl::Op op_ = 0;
  std::vector<Transfer> sends_;
  std::vector<Transfer> receives_;
  std::map<DataType, nccl::Op> factors_;
  std::vector<void*> memory_;  ///< memory that the library allocated
  std::vector<cuda::Memory> other_memory_;
  std::vector<nccl::Window> windows_;
};

void NcclLibrary::leave() {
  if (comm_ == nullptr) return;
  for (const nccl::Window window : windows_) api_.window_deregister(comm_, window);
  for (const auto& [type, op] : factors_) api_.op_destroy(op, comm_);
  api_.comm_destroy(comm_);
}

Result<std::byte*> NcclLibrary::allocate(size_t bytes) {
  if (api_.mem_alloc == nullptr || api_.mem_free == nullptr) {
    TUTTI_ASSIGN(auto memory, cuda::allocate(bytes));
    other_memory_.push_back(std::move(memory));
    return other_memory_.back().get();
  }
  void* memory = nullptr;
  TUTTI_TRY(api_.status(api_.mem_alloc(&memory, bytes), "ncclMemAlloc", comm_));
  memory_.push_back(memory);
  TUTTI_TRY(cuda::status_of(cudaMemset(memory, 0, bytes), "cannot clear memory of ncclMemAlloc"));
  TUTTI_TRY(cuda::status_of(cudaDeviceSynchronize(), "cannot clear memory of ncclMemAlloc"));
  return static_cast<std::byte*>(memory);
}

Result<std::byte*> NcclLibrary::take_registered(size_t bytes) {
  TUTTI_ASSIGN(std::byte* const memory, allocate(bytes));
  if (api_.window_register == nullptr || api_.window_deregister == nullptr) return memory;
  nccl::Window window = nullptr;
  TUTTI_TRY(api_.status(api_.window_register(comm_, memory, bytes, &window, nccl::kWindowCollSymmetric),
                        "ncclCommWindowRegister", comm_));
  if (window != nullptr) windows_.push_back(window);
  return memory;
}

Result<nccl::Op> NcclLibrary::factor_op(DataType type) {
  if (const auto known = factors_.find(type); known != factors_.end()) return known->second;
  Reduction reduction = pre_mul_sum(type, check::pre_mul_factor(type, rank_));
  nccl::Op op = 0;
  TUTTI_TRY(api_.status(
      api_.create_pre_mul_sum(&op, &reduction.scalar, nccl::type_of(type), nccl::kScalarHostImmediate, comm_),
      "ncclRedOpCreatePreMulSum", comm_));
  factors_[type] = op;
  return op;
}

Status NcclLibrary::prepare(const check::Problem& problem) {
  if (comm_ == nullptr) return Status(Code::kAborted, "the communicator was aborted");
  problem_ = problem;
  type_ = nccl::type_of(problem.type);
  op_ = nccl::op_of(problem.op);
  if (problem.op == ReduceOp::kPreMulSum) {
    TUTTI_ASSIGN(op_, factor_op(problem.type));
  }
  sends_ = sends_of(problem, rank_);
  receives_ = receives_of(problem, rank_);
  return {};
}

Status NcclLibrary::run(const void* input, void* output, Stream stream) {
  if (comm_ == nullptr) return Status(Code::kAborted, "the communicator was aborted");
  auto* queue = static_cast<nccl::Queue>(stream);
  if (!sends_.empty() || !receives_.empty()) return transfer(input, output, queue);
  return api_.status(enqueue(input, output, queue), to_string(problem_.collective), comm_);
}

nccl::Error NcclLibrary::enqueue(const void* input, void* output, nccl::Queue stream) const {
  const size_t count = problem_.count;
  switch (problem_.collective) {
    case Collective::kAllReduce:
      return api_.all_reduce(input, output, count, type_, op_, comm_, stream);
    case Collective::kReduceScatter:
      return api_.reduce_scatter(input, output, count, type_, op_, comm_, stream);
    case Collective::kAllGather:
      return api_.all_gather(input, output, count, type_, comm_, stream);
    case Collective::kBroadcast:
      return api_.broadcast(input, output, count, type_, problem_.root, comm_, stream);
    case Collective::kReduce:
      return api_.reduce(input, output, count, type_, op_, problem_.root, comm_, stream);
    default:
      return 0;  // a group in which this rank has no part
  }
}

Status NcclLibrary::transfer(const void* input, void* output, nccl::Queue stream) const {
  const size_t element_bytes = size_of(problem_.type);
  const auto* from = static_cast<const std::byte*>(input);
  auto* to = static_cast<std::byte*>(output);
  TUTTI_TRY(api_.status(api_.group_start(), "ncclGroupStart", comm_));
  Status status;
  for (const Transfer& sent : sends_) {
    const nccl::Error error =
        api_.send(from + sent.offset * element_bytes, sent.count, type_, sent.peer, comm_, stream);
    if (status.ok()) status = api_.status(error, "ncclSend", comm_);
  }
  for (const Transfer& received : receives_) {
    const nccl::Error error =
        api_.recv(to + received.offset * element_bytes, received.count, type_, received.peer, comm_, stream);
    if (status.ok()) status = api_.status(error, "ncclRecv", comm_);
  }
  const Status done = api_.status(api_.group_end(), "ncclGroupEnd", comm_);
  return status.ok() ? done : status;
}

Status NcclLibrary::async_error() const {
  if (comm_ == nullptr || api_.comm_get_async_error == nullptr) return {};
  nccl::Error error = 0;
  TUTTI_TRY(api_.status(api_.comm_get_async_error(comm_, &error), "ncclCommGetAsyncError", comm_));
  return error == nccl::kInProgress ? Status() : api_.status(error, "asynchronous error", comm_);
}

void NcclLibrary::abort(std::string_view /*reason*/) {
  if (comm_ != nullptr) api_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace

Result<std::unique_ptr<Library>> join_nccl(const std::string& path, Communicator& control) {
  TUTTI_ASSIGN(nccl::Api api, nccl::load(path));
  nccl::UniqueId own{};
  if (control.rank() == 0) TUTTI_TRY(api.status(api.get_unique_id(&own), "ncclGetUniqueId", nullptr));
  TUTTI_ASSIGN(const auto ids, exchange(control, own));
  nccl::Comm comm = nullptr;
  TUTTI_TRY(
      api.status(api.comm_init_rank(&comm, control.size(), ids.front(), control.rank()), "ncclCommInitRank", nullptr));
  return std::unique_ptr<Library>(std::make_unique<NcclLibrary>(std::move(api), comm, control.rank()));
}

}  // namespace tutti::bench
