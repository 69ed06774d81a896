// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/questions.h"

#include <utility>

namespace tutti::bootstrap {

void Questions::open(uint32_t id, base::Time limit, Answered done) {
  const auto timer = poller_.at(limit, [this, id] {
    const auto open = questions_.extract(id);
    open.mapped().done(Status(Code::kTimeout, "no hub answers: its process is stopped, or cannot be reached"));
  });
  questions_.emplace(id, Question{std::move(done), timer});
}

bool Questions::take(const Frame& reply) {
  const auto open = questions_.extract(reply.header.id);
  if (open.empty()) return false;
  poller_.cancel(open.mapped().limit);
  const auto code = static_cast<Code>(reply.header.code);
  open.mapped().done(code == Code::kOk ? decode_answers(reply.payload)
                                       : Result<std::vector<Answer>>(Status(code, to_text(reply.payload))));
  return true;
}

void Questions::fail(const Status& why) {
  for (auto& [id, question] : std::exchange(questions_, {})) {
    poller_.cancel(question.limit);
    question.done(why);
  }
}

void Questions::drop() {
  for (const auto& [id, question] : questions_) poller_.cancel(question.limit);
  questions_.clear();
}

}  // namespace tutti::bootstrap
