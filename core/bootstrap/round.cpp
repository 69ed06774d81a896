// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/round.h"

#include <fmt/format.h>

#include "bootstrap/rank_list.h"

namespace tutti::bootstrap {
namespace {

std::string name_of(const Header& call) {
  switch (static_cast<Operation>(call.code)) {
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kBroadcast:
      return fmt::format("broadcast from rank {}", call.rank);
  }
  return fmt::format("unknown operation {}", call.code);
}

}  // namespace

Status Round::add(int rank, Frame call) {
  const size_t index = static_cast<size_t>(rank);
  if (has(rank)) return Status(Code::kInternal, fmt::format("rank {} made two bootstrap calls at once", rank));
  if (empty()) call_ = call.header;
  ids_[index] = call.header.id;
  if (call.header.code != call_.code || call.header.rank != call_.rank) {
    std::vector<int> others;
    for (int other = 0; other < static_cast<int>(ids_.size()); ++other)
      if (other != rank && has(other)) others.push_back(other);
    return Status(Code::kMismatch, fmt::format("ranks disagree on a bootstrap call: {} on {}, {} on rank {}", name(),
                                               rank_list(others), name_of(call.header), rank));
  }
  ++count_;
  bytes_ += sizeof(uint32_t) + call.payload.size();
  if (bytes_ > kMaxPayloadBytes)
    return Status(Code::kInvalidArgument, fmt::format("{} of all ranks together is above the bootstrap's limit of {} "
                                                      "bytes",
                                                      name(), kMaxPayloadBytes));
  parts_[index] = std::move(call.payload);
  return {};
}

std::vector<int> Round::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(ids_.size()); ++rank)
    if (!has(rank)) ranks.push_back(rank);
  return ranks;
}

std::string Round::name() const {
  return name_of(call_);
}

Bytes Round::result() const {
  switch (static_cast<Operation>(call_.code)) {
    case Operation::kAllGather:
      return pack(parts_);
    case Operation::kBroadcast:
      if (static_cast<size_t>(call_.rank) < parts_.size()) return parts_[static_cast<size_t>(call_.rank)];
      break;
    case Operation::kBarrier:
      break;
  }
  return {};
}

void Round::clear() {
  ids_.assign(ids_.size(), std::nullopt);
  parts_.assign(parts_.size(), {});
  count_ = 0;
  bytes_ = 0;
}

void Survey::answer(int rank, Answer answer) {
  auto& known = answers_[static_cast<size_t>(rank)];
  if (known) return;
  known = std::move(answer);
  --open_;
}

Bytes Survey::result() const {
  std::vector<Answer> answers;
  answers.reserve(answers_.size());
  for (const auto& answer : answers_) answers.push_back(answer.value_or(Answer{}));
  return encode(answers);
}

}  // namespace tutti::bootstrap
