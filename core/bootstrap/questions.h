// SPDX-License-Identifier: Apache-2.0
// The questions of a rank to all ranks that wait for their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "bootstrap/answer.h"
#include "bootstrap/poller.h"

namespace tutti::bootstrap {

/// Everything here runs on the poller's thread.
class Questions {
 public:
  using Answered = std::function<void(Result<std::vector<Answer>>)>;

  explicit Questions(Poller& poller) : poller_(poller) {}
  /// `done` gets the answers, the reason why there are none, or kTimeout at the limit.
  void open(uint32_t id, base::Time limit, Answered done);
  /// Ends the question of this reply. False if no question has the reply's id.
  bool take(const Frame& reply);
  /// Ends all questions with this failure.
  void fail(const Status& why);
  /// Forgets all questions.
  void drop();

 private:
  struct Question {
    Answered done;
    Poller::Timer limit;
  };
  Poller& poller_;
  std::map<uint32_t, Question> questions_;  ///< by their ids
};

}  // namespace tutti::bootstrap
