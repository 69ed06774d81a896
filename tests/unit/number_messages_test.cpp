// SPDX-License-Identifier: Apache-2.0
// The pass number_messages, on programs that are written by hand.
#include "program/passes/number_messages.h"

#include <gmock/gmock.h>

namespace tutti::test {
namespace {

using program::Program;
using testing::ElementsAre;

/// Adds a step that receives from some ranks and sends to others. The numbers of messages are poison.
void add_step(Program& program, const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
  tutti_program_step& step = program.steps.emplace_back();
  const auto add = [&](const std::vector<uint32_t>& ranks, auto& begin, auto& count) {
    begin = static_cast<uint32_t>(program.peers.size());
    count = static_cast<uint32_t>(ranks.size());
    for (const uint32_t rank : ranks) {
      tutti_program_peer& peer = program.peers.emplace_back();
      peer.rank = rank;
      peer.message = 77;
    }
  };
  add(from, step.recv_begin, step.recv_count);
  add(to, step.send_begin, step.send_count);
}

std::vector<uint32_t> numbers(const Program& program) {
  std::vector<uint32_t> of;
  for (const tutti_program_peer& peer : program.peers) of.push_back(peer.message);
  return of;
}

TEST(NumberMessages, CountsEachConnectionAndDirectionAlone) {
  Program program;
  add_step(program, {}, {1, 2});
  add_step(program, {1}, {1});
  add_step(program, {2, 1}, {1});
  program::number_messages(program);
  EXPECT_THAT(numbers(program), ElementsAre(0, 0, /*step 1*/ 0, 1, /*step 2*/ 0, 1, 2));
  EXPECT_EQ(program.messages, 3u) << "to rank 1";
}

TEST(NumberMessages, NumbersAgainFromZero) {
  Program program;
  add_step(program, {3}, {});
  add_step(program, {3}, {});
  for (int i = 0; i < 2; ++i) {
    program::number_messages(program);
    EXPECT_THAT(numbers(program), ElementsAre(0, 1));
    EXPECT_EQ(program.messages, 2u);
  }
}

TEST(NumberMessages, FindsNoneWhereNoneIsSent) {
  Program program;
  add_step(program, {}, {});
  program.messages = 5;
  program::number_messages(program);
  EXPECT_EQ(program.messages, 0u);
}

TEST(EvenMessages, GivesAllProgramsThoseOfTheBusiest) {
  program::Programs programs(2, std::vector<Program>(2));
  add_step(programs[0][1], {0}, {});
  add_step(programs[1][0], {}, {1});
  add_step(programs[1][0], {}, {1});
  for (auto& channel : programs) {
    for (Program& program : channel) program::number_messages(program);
  }
  program::even_messages(programs);
  for (const auto& channel : programs) {
    for (const Program& program : channel) EXPECT_EQ(program.messages, 2u);
  }
}

}  // namespace
}  // namespace tutti::test
