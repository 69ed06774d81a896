// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/answer.h"

namespace tutti::bootstrap {

Bytes encode(const std::vector<Answer>& answers) {
  std::vector<Bytes> entries;
  entries.reserve(answers.size());
  for (const Answer& answer : answers) {
    Bytes& entry = entries.emplace_back();
    entry.reserve(1 + answer.bytes.size());
    entry.push_back(static_cast<std::byte>(answer.state));
    entry.insert(entry.end(), answer.bytes.begin(), answer.bytes.end());
  }
  return pack(entries);
}

Result<std::vector<Answer>> decode_answers(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const std::vector<Bytes> entries, unpack(bytes));
  std::vector<Answer> answers;
  answers.reserve(entries.size());
  for (const Bytes& entry : entries) {
    if (entry.empty() || entry.front() > static_cast<std::byte>(Answer::State::kLost))
      return Status(Code::kInvalidArgument, "an answer of a rank begins with an unknown state");
    answers.push_back({static_cast<Answer::State>(entry.front()), Bytes(entry.begin() + 1, entry.end())});
  }
  return answers;
}

}  // namespace tutti::bootstrap
