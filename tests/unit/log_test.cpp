// SPDX-License-Identifier: Apache-2.0
// The log: the form of a line, the lines that it writes, their destination, and writers in many threads.
#include "log/log.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Counted {
  int* formatted;
};

}  // namespace

template <>
struct fmt::formatter<Counted> : fmt::formatter<int> {
  template <class Context>
  auto format(Counted counted, Context& context) const {
    return fmt::formatter<int>::format(++*counted.formatted, context);
  }
};

namespace tutti::log {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / fmt::format("tutti-log-{}", getpid());
    fs::create_directories(folder_);
    file_ = (folder_ / "log").string();
  }
  void TearDown() override {
    set_rank(0, 0);
    ASSERT_TRUE(configure(Level::kWarn, "").ok());
    fs::remove_all(folder_);
  }
  static std::vector<std::string> lines(const fs::path& file) {
    std::ifstream in(file);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }

  fs::path folder_;
  std::string file_;
};

TEST_F(Log, SpeaksOnStderrFromWarnOnByDefault) {
  ::testing::internal::CaptureStderr();
  error("link {} is down", 3);
  warn("slow");
  info("not seen");
  debug("not seen");
  trace("not seen");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, MatchesRegex("[0-9:.]+ error link 3 is down\n[0-9:.]+ warn slow\n"));
}

TEST_F(Log, EachLevelIncludesTheOnesBefore) {
  for (int level = 0; level <= static_cast<int>(Level::kTrace); ++level) {
    fs::remove(file_);
    ASSERT_TRUE(configure(Level::kOff, "").ok());
    ASSERT_TRUE(configure(static_cast<Level>(level), file_).ok());
    error("x");
    warn("x");
    info("x");
    debug("x");
    trace("x");
    EXPECT_THAT(lines(file_), SizeIs(static_cast<size_t>(level))) << to_string(static_cast<Level>(level));
  }
}

TEST_F(Log, NamesOfLevelsAreRead) {
  for (int level = 0; level <= static_cast<int>(Level::kTrace); ++level) {
    EXPECT_EQ(level_from(to_string(static_cast<Level>(level))), static_cast<Level>(level));
  }
  EXPECT_EQ(level_from("loud"), Level::kWarn);
}

TEST_F(Log, ASilentLineIsNotFormatted) {
  int formatted = 0;
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  debug("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  info("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 1);
}

TEST_F(Log, ARankBelongsToItsThread) {
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  set_rank(3, 8);
  info("mine");
  std::thread([] { info("nobody's"); }).join();
  set_rank(0, 0);
  info("nobody's again");
  EXPECT_THAT(lines(file_), ElementsAre(MatchesRegex("[0-9:.]+ info 3/8 mine"), MatchesRegex("[0-9:.]+ info nobody's"),
                                        MatchesRegex("[0-9:.]+ info nobody's again")));
}

TEST_F(Log, FileNamesCarryHostAndProcess) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  ASSERT_TRUE(configure(Level::kWarn, (folder_ / "%h-%p-%x-%").string()).ok());
  warn("here");
  EXPECT_THAT(lines(folder_ / fmt::format("{}-{}-%x-%", host.data(), getpid())), SizeIs(1));
}

TEST_F(Log, AFileIsAppendedTo) {
  for (const char* text : {"first", "second"}) {
    ASSERT_TRUE(configure(Level::kWarn, file_).ok());
    warn("{}", text);
    ASSERT_TRUE(configure(Level::kWarn, "").ok());
  }
  EXPECT_THAT(lines(file_), ElementsAre(HasSubstr("first"), HasSubstr("second")));
}

TEST_F(Log, AFileThatCannotBeWrittenChangesNothing) {
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  const std::string bad = (folder_ / "log" / "below-a-file").string();
  const Status status = configure(Level::kTrace, bad);
  EXPECT_EQ(status.code(), Code::kConfig);
  EXPECT_THAT(std::string(status.text()), HasSubstr(bad));
  info("still here");
  trace("and not louder");
  EXPECT_THAT(lines(file_), ElementsAre(HasSubstr("still here")));
}

TEST_F(Log, BracesAndLineBreaksOfAPluginsTextAreHarmless) {
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  write(Level::kWarn, "a {} b {0} %v\nsecond\n\n");
  write(Level::kWarn, "");
  write(Level::kWarn, "\n");
  EXPECT_THAT(lines(file_),
              ElementsAre(HasSubstr("warn a {} b {0} %v | second"), HasSubstr("warn "), HasSubstr("warn ")));
}

TEST_F(Log, LinesOfManyThreadsStayWholeWhileTheLogIsReconfigured) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      set_rank(thread, kThreads);
      for (int line = 0; line < kLines; ++line) info("line {} of {}", line, std::string(100, 'x'));
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(configure(Level::kInfo, i % 2 == 0 ? file_ + ".b" : file_).ok());
  for (std::thread& thread : threads) thread.join();
  auto all = lines(file_);
  for (std::string& line : lines(file_ + ".b")) all.push_back(std::move(line));
  EXPECT_THAT(all, SizeIs(kThreads * kLines));
  EXPECT_THAT(all, Each(MatchesRegex("[0-9:.]+ info [0-3]/4 line [0-9]+ of x+")));
}

TEST_F(Log, EqualWarningsOfManyRanksAreCounted) {
  ASSERT_TRUE(configure(Level::kWarn, file_).ok());
  for (int rank = 0; rank < 1024; ++rank) {
    set_rank(rank, 1024);
    warn("one of all");
    error("an error");
  }
  set_rank(0, 1024);
  warn("one of all");  // the rank that wrote it first
  set_rank(7, 1024);
  warn("of rank 7");
  auto all = lines(file_);
  const auto errors = std::remove_if(
      all.begin(), all.end(), [](const std::string& line) { return line.find("an error") != std::string::npos; });
  EXPECT_EQ(all.end() - errors, 1024);
  all.erase(errors, all.end());
  EXPECT_THAT(all, ElementsAre(HasSubstr("warn 0/1024 one of all"),
                               HasSubstr("warn 9/1024 one of all (the 10th time in this process)"),
                               HasSubstr("warn 99/1024 one of all (the 100th time in this process)"),
                               HasSubstr("warn 999/1024 one of all (the 1000th time in this process)"),
                               HasSubstr("warn 0/1024 one of all"), HasSubstr("warn 7/1024 of rank 7")));
}

TEST_F(Log, EachRankWritesItsWarningsIfMoreIsAskedFor) {
  ASSERT_TRUE(configure(Level::kInfo, file_).ok());
  for (int rank = 0; rank < 20; ++rank) {
    set_rank(rank, 20);
    warn("shown by each");
  }
  EXPECT_THAT(lines(file_), SizeIs(20));
}

TEST_F(Log, AFilterChoosesTheLines) {
  ASSERT_TRUE(configure(Level::kWarn, file_).ok());
  set_rank(3, 8);
  set_filter([](Level level, int rank, std::string_view text) {
    EXPECT_EQ(level, Level::kWarn);
    EXPECT_EQ(rank, 3);
    return text != "second";
  });
  for (const char* const text : {"first", "second", "third"}) warn("{}", text);
  set_filter(nullptr);
  warn("{}", "fourth");
  EXPECT_THAT(lines(file_), ElementsAre(HasSubstr("first"), HasSubstr("third"), HasSubstr("fourth")));
}

}  // namespace
}  // namespace tutti::log
