// SPDX-License-Identifier: Apache-2.0
// The collections of the hub: the parts of a call that all ranks make, and the answers to a question.
#pragma once

#include <optional>
#include <vector>

#include "bootstrap/answer.h"

namespace tutti::bootstrap {

/// One call that every rank makes. Holds the parts that have arrived, and detects parts that do not fit.
/// For the poller's thread.
class Round {
 public:
  explicit Round(int rank_count) : ids_(static_cast<size_t>(rank_count)), parts_(static_cast<size_t>(rank_count)) {}

  /// Adds the part of one rank. kMismatch if its call differs from the call of its peers, kInvalidArgument if all parts
  /// together are too long; both are failures of every rank.
  Status add(int rank, Frame call);
  bool empty() const { return count_ == 0; }
  bool complete() const { return count_ == parts_.size(); }
  bool has(int rank) const { return ids_[static_cast<size_t>(rank)].has_value(); }
  std::vector<int> missing() const;
  /// The number under which the rank made its call.
  uint32_t id(int rank) const { return *ids_[static_cast<size_t>(rank)]; }
  /// "all_gather", "broadcast from rank 3".
  std::string name() const;
  /// The result for every rank when the round is complete, packed.
  Bytes result() const;
  /// Makes ready for the next call.
  void clear();

 private:
  Header call_;  ///< header of the first part
  std::vector<std::optional<uint32_t>> ids_;
  std::vector<Bytes> parts_;
  size_t count_ = 0;
  size_t bytes_ = 0;
};

/// One question to all ranks, and their answers. Ranks that ask the same at the same time share a survey.
/// For the poller's thread.
class Survey {
 public:
  struct Asker {
    int rank;
    uint32_t id;  ///< the number under which it asked
  };
  Survey(Asker asker, Bytes question, int rank_count)
      : askers_{asker},
        question_(std::move(question)),
        answers_(static_cast<size_t>(rank_count)),
        open_(answers_.size()) {}

  bool asks(const Bytes& question) const { return question == question_; }
  void add(Asker asker) { askers_.push_back(asker); }
  const std::vector<Asker>& askers() const { return askers_; }
  /// The first answer for a rank counts.
  void answer(int rank, Answer answer);
  bool complete() const { return open_ == 0; }
  /// All answers, packed; kSilent for ranks that gave none.
  Bytes result() const;

 private:
  std::vector<Asker> askers_;
  Bytes question_;
  std::vector<std::optional<Answer>> answers_;
  size_t open_;
};

}  // namespace tutti::bootstrap
