// SPDX-License-Identifier: Apache-2.0
// The records of calls, their digests, the messages of ranks about them, and the texts of these messages.
#include "backend/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "communicator/survey.h"
#include "communicator/verdict.h"

namespace tutti::communicator {

using backend::Call;
using backend::CallShape;
using backend::Turn;
using backend::Waiting;
namespace {

using testing::AllOf;
using testing::HasSubstr;

CallShape shape(Collective collective, size_t count = 8, int root = 0, DataType type = DataType::kFloat32,
                Reduction op = ReduceOp::kSum) {
  Call call;
  call.collective = collective;
  call.count = count;
  call.root = root;
  call.type = type;
  call.reduction = op;
  return CallShape::of(call);
}

TEST(Digest, DependsOnEachPropertyInFullWidth) {
  const std::vector<CallShape> shapes = {shape(Collective::kBroadcast),
                                         shape(Collective::kReduce),
                                         shape(Collective::kBroadcast, 9),
                                         shape(Collective::kBroadcast, 8 + (size_t{1} << 32)),
                                         shape(Collective::kBroadcast, 0),
                                         shape(Collective::kBroadcast, 8, 1),
                                         shape(Collective::kBroadcast, 8, 256),
                                         shape(Collective::kBroadcast, 8, 0, DataType::kInt32),
                                         shape(Collective::kReduce, 8, 0, DataType::kFloat32, ReduceOp::kMax)};
  std::set<uint64_t> digests;
  for (const CallShape& one : shapes) digests.insert(CallRecords(1).add(one));
  EXPECT_EQ(digests.size(), shapes.size());
  Call call;
  EXPECT_NE(CallShape::of(call, 1).hash, CallShape::of(call, 2).hash) << "another algorithm";
}

TEST(Digest, IgnoresWhatRanksMayHaveDifferent) {
  Call one;
  Call other = one;
  other.input = &one;
  other.reduction.scalar = 7;
  EXPECT_EQ(CallShape::of(one).hash, CallShape::of(other).hash);
  EXPECT_EQ(shape(Collective::kAllReduce, 8, 3).hash, shape(Collective::kAllReduce, 8, 0).hash) << "it has no root";
  EXPECT_EQ(shape(Collective::kBroadcast, 8, 0, DataType::kInt8, ReduceOp::kMax).hash,
            shape(Collective::kBroadcast, 8, 0, DataType::kInt8, ReduceOp::kSum).hash);
}

TEST(Digest, DependsOnOrderNumberAndCommunicator) {
  const CallShape a = shape(Collective::kAllReduce);
  const CallShape b = shape(Collective::kAllGather);
  CallRecords ab(1), ba(1), aa(1), other(2);
  ab.add(a);
  ba.add(b);
  EXPECT_NE(ab.add(b), ba.add(a));
  const uint64_t first = aa.add(a);
  EXPECT_NE(first, aa.add(a));
  EXPECT_NE(first, other.add(a));
}

TEST(Records, AreKeptForAWhile) {
  CallRecords records(5);
  EXPECT_EQ(records.at(0)->digest, 5u);
  EXPECT_FALSE(records.at(1));
  std::vector<uint64_t> digests = {5};
  for (size_t i = 1; i <= 1000; ++i) digests.push_back(records.add(shape(Collective::kAllReduce, i)));
  EXPECT_EQ(records.latest(), 1000u);
  for (size_t i = 1000 - CallRecords::kReadable; i <= 1000; ++i) {
    ASSERT_TRUE(records.at(i)) << i;
    EXPECT_EQ(records.at(i)->digest, digests[i]);
    EXPECT_EQ(records.at(i)->count, i);
  }
  EXPECT_FALSE(records.at(1000 - CallRecords::kReadable - 1));
  EXPECT_FALSE(records.at(1001));
}

/// One thread reads all the time, and always gets whole records.
TEST(Records, CanBeReadWhileTheyAreWritten) {
  constexpr uint64_t kCalls = 200'000;
  CallRecords records(1);
  std::vector<uint64_t> digests(kCalls + 1);
  CallRecords same(1);
  for (uint64_t i = 1; i <= kCalls; ++i) digests[i] = same.add(shape(Collective::kAllReduce, i));
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) records.add(shape(Collective::kAllReduce, i));
  });
  uint64_t read = 0;
  uint64_t latest = 0;
  do {
    latest = records.latest();
    for (const uint64_t back : {uint64_t{0}, CallRecords::kReadable - 1, CallRecords::kReadable}) {
      if (latest <= back) continue;
      const auto record = records.at(latest - back);
      if (!record) continue;
      ++read;
      ASSERT_EQ(record->count, latest - back);
      ASSERT_EQ(record->digest, digests[latest - back]);
    }
  } while (latest < kCalls);
  writer.join();
  EXPECT_EQ(records.at(kCalls)->digest, digests[kCalls]);
  EXPECT_GT(read, 0u);
}

TEST(History, HasTheSameMessagesOnBothEnds) {
  History one(1, 4), three(3, 4);
  one.set_seed(9);
  three.set_seed(9);
  const CallShape message = shape(Collective::kSendRecv);
  const uint64_t sent = one.add_message(Turn::Kind::kSend, 3, message);
  EXPECT_EQ(sent, three.add_message(Turn::Kind::kReceive, 1, message));
  EXPECT_NE(sent, three.add_message(Turn::Kind::kSend, 1, message)) << "the other direction";
  EXPECT_EQ(one.messages(Turn::Kind::kReceive, 3), nullptr);
  EXPECT_EQ(one.messages(Turn::Kind::kSend, 3)->latest(), 1u);
}

TEST(History, DescribesItsProgress) {
  History history(0, 2);
  EXPECT_EQ(describe(history.progress()), "has made no call");
  history.add_call(shape(Collective::kBroadcast, 10, 1));
  history.enter(History::Phase::kIn);
  EXPECT_EQ(describe(history.progress()), "is in call 1, broadcast of 10 × float32, root 1");
  history.add_call(shape(Collective::kAllReduce));  // a call is shown once it is entered
  EXPECT_EQ(describe(history.progress()), "is in call 1, broadcast of 10 × float32, root 1");
  history.enter(History::Phase::kIn);
  history.enter_end(History::Phase::kDone);
  EXPECT_EQ(describe(history.progress()), "has done call 2, all_reduce of 8 × float32, sum");
  history.enter_messages(History::Phase::kIn, shape(Collective::kSendRecv));
  EXPECT_EQ(describe(history.progress()), "is in send_recv of 8 × float32 after call 2");
}

// Surveys.

TEST(Survey, ReportsArriveAsTheyWere) {
  History history(0, 2);
  Waiting waiting;
  for (size_t i = 1; i <= 5; ++i) history.add_call(shape(Collective::kAllReduce, i));
  history.enter(History::Phase::kIn);
  history.add_message(Turn::Kind::kReceive, 1, shape(Collective::kSendRecv, 3));
  waiting.begin(Waiting::Clock::now() - std::chrono::seconds(3), {Turn::Kind::kCollective, 0, 5}, 1);
  const Question asked{2, 4, 1, 0, 1, 1};
  const auto question = decode_question(encode(asked));
  ASSERT_TRUE(question.ok());
  const auto report = decode_report(encode(answer(*question, 0, history, waiting)));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->presence, Report::Presence::kPresent);
  EXPECT_EQ(describe(report->progress), "is in call 5, all_reduce of 5 × float32, sum");
  EXPECT_EQ(report->calls.latest, 5u);
  ASSERT_EQ(report->calls.records.size(), 3u);
  EXPECT_EQ(report->calls.at(2)->count, 2u);
  EXPECT_EQ(report->calls.at(1), nullptr);
  EXPECT_EQ(report->calls.at(5), nullptr);
  EXPECT_EQ(report->messages.at(1)->count, 3u);
  EXPECT_EQ(report->wait.peer, 1u);
  EXPECT_EQ(report->wait.turn.number, 5u);
  EXPECT_GE(report->wait.milliseconds, 3000u);
}

TEST(Survey, ASlowerRankTellsItsLatestRecord) {
  CallRecords records(1);
  for (size_t i = 1; i <= 3; ++i) records.add(shape(Collective::kAllReduce, i));
  const Series series = Series::of(records, 9, 9);
  EXPECT_EQ(series.latest, 3u);
  ASSERT_EQ(series.records.size(), 1u);
  EXPECT_EQ(series.at(3)->count, 3u);
  EXPECT_TRUE(Series::of(CallRecords(1), 9, 9).records.empty());
}

TEST(Survey, BytesOfOthersAreRefused) {
  std::mt19937_64 random(std::random_device{}());
  History history(0, 2);
  const Waiting waiting;
  history.add_call(shape(Collective::kAllReduce));
  const bootstrap::Bytes good = encode(answer({1, 1, 0, 1, 0, 0}, 0, history, waiting));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode_report(std::span(good).first(length)).ok()) << length;
  for (int i = 0; i < 2000; ++i) {  // must not crash
    bootstrap::Bytes bytes = good;
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
    const auto report = decode_report(bytes);
    if (report.ok()) {
      EXPECT_LE(report->calls.records.size(), 1u);
    }
  }
  EXPECT_FALSE(decode_question({}).ok());
}

TEST(Survey, ARecordThatIsCutOffIsRefused) {
  const bootstrap::Bytes good = encode(Series{1, 1, {Record{}}});
  EXPECT_TRUE(decode_series(good).ok());
  std::vector<bootstrap::Bytes> parts = *bootstrap::unpack(good);
  for (size_t more = 1; more < sizeof(Record); more *= 2) {
    std::vector<bootstrap::Bytes> longer = parts;
    longer[1].resize(parts[1].size() + more);
    EXPECT_FALSE(decode_series(bootstrap::pack(longer)).ok()) << more;
  }
}

TEST(Survey, QuestionsOfAnyNumbersAreAnswered) {
  History history(0, 2);
  Waiting waiting;
  for (size_t i = 1; i <= 1000; ++i) history.add_call(shape(Collective::kAllReduce));
  history.add_message(Turn::Kind::kSend, 1, shape(Collective::kSendRecv));
  const Report all = answer({1, UINT64_MAX, 0, 1, 0, UINT64_MAX}, 0, history, waiting);
  EXPECT_EQ(all.calls.records.size(), CallRecords::kReadable);
  EXPECT_EQ(all.calls.end(), 1001u);
  EXPECT_EQ(all.messages.records.size(), 1u);
  const Report none = answer({0, 0, 0, UINT32_MAX, 1, 1}, 0, history, waiting);  // a rank that does not exist
  EXPECT_TRUE(none.messages.records.empty());
}

TEST(Survey, ReportsWithImpossibleValuesAreRefused) {
  History history(0, 2);
  Waiting waiting;
  waiting.begin(Waiting::Clock::now(), {Turn::Kind::kCollective, 0, 5}, 1);
  const Report good = answer({}, 0, history, waiting);
  EXPECT_TRUE(decode_report(encode(good)).ok());
  const auto refused = [&](auto change) {
    Report report = good;
    change(report);
    return !decode_report(encode(report)).ok();
  };
  EXPECT_TRUE(refused([](Report& report) { report.progress.phase = static_cast<Progress::Phase>(5); }));
  EXPECT_TRUE(refused([](Report& report) { report.wait.turn.kind = static_cast<Turn::Kind>(3); }));
  EXPECT_TRUE(refused([](Report& report) { report.wait.since = INT64_MAX; }));
  EXPECT_TRUE(refused([](Report& report) { report.wait.since = -1; }));
  EXPECT_TRUE(refused([](Report& report) { report.calls = {5, 6, {Record{}}}; }));
  EXPECT_TRUE(refused([](Report& report) { report.calls = {5, 5, {Record{}, Record{}}}; }));
  EXPECT_TRUE(refused([](Report& report) { report.calls = {UINT64_MAX, UINT64_MAX, {Record{}}}; }));
  EXPECT_FALSE(refused([](Report& report) { report.calls = {5, 5, {Record{}}}; }));
}

// Texts.

Report report_of(const CallRecords& records, uint64_t from = 1) {
  Report report;
  report.presence = Report::Presence::kPresent;
  report.calls = Series::of(records, from, records.latest());
  report.progress.number = records.latest();
  report.progress.phase = Progress::Phase::kDone;
  if (const auto record = records.at(records.latest())) report.progress.record = *record;
  return report;
}

TEST(Verdict, RanksMayBeFarApart) {
  std::vector<Report> reports(2);
  reports[0].calls = {1, 1, {Record{0, 1, 7}}};
  reports[1].calls = {uint64_t{1} << 62, uint64_t{1} << 62, {Record{0, 1, 8}}};
  EXPECT_EQ(different_calls(reports), std::nullopt);
  reports[1].calls.records.front().digest = 7;
  reports[1].calls.latest = reports[1].calls.first = 1;
  EXPECT_EQ(different_calls(reports), std::nullopt);
  reports[1].calls.records.front().digest = 8;
  EXPECT_NE(different_calls(reports), std::nullopt);
}

TEST(Verdict, NamesTheFirstDifference) {
  CallRecords even(1), odd(1);
  for (int i = 0; i < 3; ++i) {
    even.add(shape(Collective::kAllReduce));
    odd.add(shape(Collective::kAllReduce));
  }
  const std::vector<Report> same = {report_of(even), report_of(odd)};
  EXPECT_FALSE(different_calls(same));
  EXPECT_FALSE(different_counts(same));
  even.add(shape(Collective::kBroadcast, 10, 0));
  odd.add(shape(Collective::kBroadcast, 10, 2));
  odd.add(shape(Collective::kAllReduce));
  const std::vector<Report> reports = {report_of(even), report_of(odd), report_of(even), Report()};
  EXPECT_THAT(
      *different_calls(reports),
      AllOf(HasSubstr("ranks made different calls: call 4 is broadcast of 10 × float32, root 0 on ranks 0,2 and "
                      "broadcast of 10 × float32, root 2 on rank 1;"),
            HasSubstr("look for a branch that depends on the rank")));
  EXPECT_THAT(*different_counts(reports),
              HasSubstr("ranks made different numbers of calls: 4 on ranks 0,2 and 5 on rank 1;"));
}

TEST(Verdict, SaysWhenTheDifferenceIsOld) {
  CallRecords one(1), other(1);
  one.add(shape(Collective::kAllReduce, 1));
  other.add(shape(Collective::kAllReduce, 2));
  for (int i = 0; i < 5; ++i) {
    one.add(shape(Collective::kAllGather));
    other.add(shape(Collective::kAllGather));
  }
  const std::vector<Report> reports = {report_of(one, 4), report_of(other, 4)};
  EXPECT_THAT(*different_calls(reports), HasSubstr("the difference lies before call 4, which is all_gather of 8 × "
                                                   "float32 on ranks 0,1; earlier ones are no longer known"));
}

TEST(Verdict, SaysWhenADecisionDiffers) {
  CallRecords one(1), other(1);
  Call call;
  call.count = 8;
  one.add(CallShape::of(call, 1));
  other.add(CallShape::of(call, 2));
  const std::vector<Report> reports = {report_of(one), report_of(other)};
  EXPECT_THAT(*different_calls(reports), HasSubstr("the ranks run it in different ways"));
}

TEST(Verdict, NamesMessages) {
  std::vector<Report> reports(3);
  MessageRecords sent(1), received(1);
  sent.add(shape(Collective::kSendRecv, 10));
  received.add(shape(Collective::kSendRecv, 12));
  reports[2].messages = Series::of(sent, 1, 1);
  reports[0].messages = Series::of(received, 1, 1);
  EXPECT_THAT(*different_messages(reports, 2, 0),
              HasSubstr("message 1 from rank 2 to rank 0 is send_recv of 12 × float32 on rank 0 and send_recv of 10 × "
                        "float32 on rank 2"));
}

TEST(Verdict, StatesOfMissingRanks) {
  CallRecords records(1);
  records.add(shape(Collective::kAllReduce));
  Report report = report_of(records);
  EXPECT_THAT(state_of(report, 2), HasSubstr("has done call 1, all_reduce of 8 × float32, sum, and is in application"));
  EXPECT_THAT(state_of(report, 1), HasSubstr("has done call 1, all_reduce of 8 × float32, sum, but its data has not"));
  report.progress.phase = Progress::Phase::kIn;
  EXPECT_EQ(state_of(report, 1), "is in call 1, all_reduce of 8 × float32, sum");
  report.presence = Report::Presence::kLeft;
  EXPECT_EQ(state_of(report), "left after call 1");
  EXPECT_THAT(state_of(Report()), HasSubstr("does not answer"));
}

TEST(Verdict, DescribesAKernelThatWaits) {
  CallRecords records(1);
  records.add(shape(Collective::kAllReduce));
  std::vector<Report> reports = {report_of(records), report_of(records)};
  for (Report& report : reports) report.progress.phase = Progress::Phase::kEnqueued;
  reports[0].wait = {1, 1, {Turn::Kind::kCollective, 0, 1}, 10'000, 3600};
  EXPECT_EQ(describe_wait(reports, 0),
            "no progress for 10 s: rank 0 waits in a GPU kernel of call 1 (all_reduce of 8 × float32, sum) or of an "
            "earlier call since 01:00:00 UTC, for rank 1; rank 1 has enqueued call 1, all_reduce of 8 × float32, sum");
  reports[0].progress.in_message = 1;
  reports[0].progress.message = {Call().kind(), 3, 0};
  EXPECT_THAT(describe_wait(reports, 0), HasSubstr("rank 0 waits in a GPU kernel; it has enqueued "));
}

TEST(Verdict, DescribesRanksThatWaitForEachOther) {
  std::vector<Report> reports(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    reports[rank].presence = Report::Presence::kPresent;
    reports[rank].wait = {1, 1 - rank, {Turn::Kind::kReceive, 1 - rank, 4}, 10'000, 3600};
  }
  EXPECT_EQ(
      describe_wait(reports, 0),
      "no progress for 10 s: rank 0 waits in message 4 from rank 1 to rank 0, rank 1 waits in message 4 from rank "
      "0 to rank 1 since 01:00:00 UTC, for each other: rank 0 for rank 1, rank 1 for rank 0");
}

/// A text about 1,024 ranks must be as readable as a text about four.
TEST(Verdict, TextsDoNotGrowWithTheRanks) {
  constexpr uint32_t kRanks = 1024;
  std::vector<Report> reports(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    reports[rank].presence = Report::Presence::kPresent;
    reports[rank].wait = {1, (rank + 1) % kRanks, {Turn::Kind::kCollective, 0, 1}, 10'000, 3600};
  }
  EXPECT_THAT(describe_wait(reports, 0),
              AllOf(HasSubstr("ranks 0-1023 wait in call 1"), HasSubstr("rank 15 for rank 16 and 1008 further ranks"),
                    testing::Not(HasSubstr("rank 16 for rank 17"))));
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    reports[rank].wait.turn = {Turn::Kind::kReceive, (rank + 1) % kRanks, 4};
  EXPECT_THAT(describe_wait(reports, 0), HasSubstr(", in all 1024 ranks wait since"));
  EXPECT_LT(describe_wait(reports, 0).size(), 3000u);
  for (uint32_t rank = 20; rank < 40; ++rank) reports[rank].wait.waits = 0;
  for (uint32_t rank = 50; rank < 70; ++rank) reports[rank].wait.peer = rank - 30;
  EXPECT_THAT(describe_wait(reports, 0), AllOf(HasSubstr(", for ranks 20-39; rank 20 "), HasSubstr("; rank 35 "),
                                               testing::EndsWith("; and 4 further ranks")));
  reports[700].presence = Report::Presence::kLost;
  EXPECT_THAT(states_of(reports, 0), AllOf(HasSubstr("; ranks 0-699,701-1023: "), HasSubstr("; rank 700: is lost")));
}

}  // namespace
}  // namespace tutti::communicator
