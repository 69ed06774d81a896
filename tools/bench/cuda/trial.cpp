// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cuda/trial.h"

#include <algorithm>

#include "tools/check/random_input.h"

namespace tutti::bench::cuda {
namespace {

constexpr size_t kPatternBytes = size_t{4} << 20;

}  // namespace

Trial::Trial(const check::Problem& problem, int rank, size_t checked_bytes)
    : problem_(problem),
      rank_(rank),
      element_bytes_(size_of(problem.type)),
      elements_(check::input_elements(problem, rank)),
      pattern_(make_piece({0, std::min(elements_, kPatternBytes / element_bytes_)})) {
  if (checked_bytes == 0) return;
  if (elements_ > pattern_.range.count) {
    for (const check::Range& range : check::sampled_input(problem, rank, checked_bytes)) {
      windows_.push_back(make_piece(range));
    }
  }
  parts_ = check::sampled_output(problem, rank, checked_bytes);
  for (const check::Part& part : parts_) {
    const size_t count = check::reduces(problem.collective) ? part.count : 0;
    references_.emplace_back(problem, part.input_first, count);
  }
}

Trial::Piece Trial::make_piece(const check::Range& range) const {
  Piece piece{range, std::vector<std::byte>(range.count * element_bytes_)};
  check::fill_input(problem_, rank_, range.first, range.count, piece.bytes.data());
  return piece;
}

Status Trial::copy_in(const Piece& piece, std::byte* input, cudaStream_t queue) const {
  if (piece.bytes.empty()) return {};
  return status_of(cudaMemcpyAsync(input + piece.range.first * element_bytes_, piece.bytes.data(), piece.bytes.size(),
                                   cudaMemcpyHostToDevice, queue),
                   "cannot copy an input to the device");
}

Status Trial::load(std::byte* input, cudaStream_t queue) const {
  TUTTI_TRY(copy_in(pattern_, input, queue));
  const size_t bytes = elements_ * element_bytes_;
  for (size_t done = pattern_.bytes.size(); done < bytes; done *= 2) {
    TUTTI_TRY(
        status_of(cudaMemcpyAsync(input + done, input, std::min(done, bytes - done), cudaMemcpyDeviceToDevice, queue),
                  "cannot fill an input on the device"));
  }
  for (const Piece& window : windows_) TUTTI_TRY(copy_in(window, input, queue));
  return status_of(cudaStreamSynchronize(queue), "cannot fill an input on the device");
}

Result<Finding> Trial::find(const std::byte* output, cudaStream_t queue) const {
  Finding finding;
  std::vector<std::byte> copy;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const check::Part& part = parts_[i];
    copy.resize(part.count * element_bytes_);
    TUTTI_TRY(status_of(cudaMemcpyAsync(copy.data(), output + part.output_first * element_bytes_, copy.size(),
                                        cudaMemcpyDeviceToHost, queue),
                        "cannot copy an output from the device"));
    TUTTI_TRY(status_of(cudaStreamSynchronize(queue), "cannot copy an output from the device"));
    finding.comparison.add(check::compare(problem_, part, references_[i], copy.data()));
    if (check::same_everywhere(problem_.collective)) {
      finding.hash = check::mix(finding.hash ^ check::hash(copy.data(), copy.size()));
    }
  }
  return finding;
}

}  // namespace tutti::bench::cuda
