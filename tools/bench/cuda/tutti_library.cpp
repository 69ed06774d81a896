// SPDX-License-Identifier: Apache-2.0
// Tutti's own communicators on CUDA devices, through the C++ API.
#include "tools/bench/batches.h"
#include "tools/bench/cuda/device.h"
#include "tools/bench/exchange.h"
#include "tools/bench/library.h"

namespace tutti::bench {
namespace {

class TuttiLibrary : public Library {
 public:
  explicit TuttiLibrary(Communicator communicator) : communicator_(std::move(communicator)) {}

  Result<std::byte*> take_registered(size_t bytes) override {
    TUTTI_ASSIGN(auto memory, cuda::allocate(bytes));
    TUTTI_ASSIGN(auto registration, communicator_.register_buffer(memory.get(), bytes));
    direct_ = registration.direct();
    registrations_.push_back(std::move(registration));
    memory_.push_back(std::move(memory));
    return memory_.back().get();
  }

  Status prepare(const check::Problem& problem) override {
    problem_ = problem;
    call_.emplace(problem, communicator_.rank());
    return {};
  }
  Status run(const void* input, void* output, Stream stream) override {
    return (*call_)(communicator_, input, output, stream);
  }
  Status start_group() override { return group_start(); }
  Status end_group() override { return group_end(); }
  Result<Ran> ran() const override { return ran_by(communicator_, problem_, direct_); }
  Counters counters() const override { return communicator_.counters(); }
  Status async_error() const override { return communicator_.async_error(); }
  void abort(std::string_view reason) override { communicator_.abort(reason); }
  LibraryFacts facts() const override { return {"Tutti", TUTTI_VERSION}; }

 private:
  std::vector<cuda::Memory> memory_;
  Communicator communicator_;
  std::vector<Registration> registrations_;  // ends before the communicator, and that before memory is freed
  bool direct_ = false;
  check::Problem problem_;
  std::optional<check::Call> call_;
};

}  // namespace

Result<std::unique_ptr<Library>> join_tutti(const Request& request, Communicator& control) {
  UniqueId own;
  if (control.rank() == 0) {
    TUTTI_ASSIGN(own, UniqueId::create());
  }
  TUTTI_ASSIGN(const auto ids, exchange(control, own));
  Options options = request.session.options(control.rank());
  options.settings.emplace_back("device", "cuda");
  TUTTI_ASSIGN(auto communicator, Communicator::create(ids.front(), control.rank(), control.size(), options));
  return std::unique_ptr<Library>(std::make_unique<TuttiLibrary>(std::move(communicator)));
}

}  // namespace tutti::bench
