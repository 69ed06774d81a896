// SPDX-License-Identifier: Apache-2.0
// Files under limits, on full file systems, and where other users may lay traps.
#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "log/log.h"
#include "memory/arena.h"
#include "unit/required.h"

namespace tutti::base {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Files : public testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "tutti-file-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  static std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// A directory in which every user may write, as /tmp.
  fs::path shared() const {
    fs::path directory = folder_ / "shared";
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms(01777));
    return directory;
  }
  static std::string said(const Status& status) { return status.to_string(); }

  fs::path folder_;
};

/// The soft limit of file sizes, until the end of a block.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~SizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;

 private:
  rlimit before_{};
};

constexpr size_t kLimit = 100 << 10;

/// The default action of SIGXFSZ ends this test: none may arrive.
TEST_F(Files, TheLimitOfFileSizesIsAnError) {
  const SizeLimit limit(kLimit);
  const auto says = AllOf(HasSubstr("File too large; the limit of file sizes is 102400 bytes; raise it (ulimit -f)"));
  EXPECT_THAT(said(write_file(folder_ / "large", std::string(kLimit + 1, 'x'))),
              AllOf(StartsWith("system error: cannot write " + (folder_ / "large").string()), says));
  EXPECT_TRUE(write_file(folder_ / "fits", std::string(kLimit, 'x')).ok());
  const Fd memory(memfd_create("test", MFD_CLOEXEC));
  EXPECT_THAT(said(resize(memory, kLimit + 1, "shared memory")), says);
  EXPECT_TRUE(resize(memory, kLimit, "shared memory").ok());
  const auto arena = memory::Arena::create(kLimit);
  EXPECT_THAT(said(arena.status()), AllOf(says, HasSubstr("lower shm.slots")));
}

TEST_F(Files, SignalsOfTheApplicationStayAsTheyAre) {
  static volatile std::sig_atomic_t signals = 0;
  struct sigaction own {};
  own.sa_handler = [](int) { signals = signals + 1; };
  struct sigaction before {};
  sigaction(SIGXFSZ, &own, &before);
  {
    const SizeLimit limit(kLimit);
    EXPECT_FALSE(write_file(folder_ / "large", std::string(kLimit + 1, 'x')).ok());
    EXPECT_EQ(signals, 0);
    const Fd file(::open((folder_ / "large").c_str(), O_WRONLY | O_APPEND));
    EXPECT_EQ(::write(file.get(), "x", 1), -1);  // a descriptor of the application
    EXPECT_EQ(signals, 1);
  }
  struct sigaction after {};
  sigaction(SIGXFSZ, &before, &after);
  EXPECT_EQ(after.sa_handler, own.sa_handler);
}

/// The application blocks the signal, and a signal is pending: it stays so.
TEST_F(Files, APendingSignalOfTheApplicationStays) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  raise(SIGXFSZ);
  {
    const SizeLimit limit(kLimit);
    EXPECT_FALSE(write_file(folder_ / "large", std::string(kLimit + 1, 'x')).ok());
  }
  constexpr timespec kNow{};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &kNow), SIGXFSZ);
  EXPECT_EQ(sigtimedwait(&set, nullptr, &kNow), -1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(Files, AFullFileSystemIsAnError) {
  EXPECT_THAT(said(write_file("/dev/full", "x")),
              HasSubstr("cannot write /dev/full: No space left on device; free some space"));
  const fs::path tiny = folder_ / "tiny";
  fs::create_directory(tiny);
  if (mount("tutti-test", tiny.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "needs root, to mount a small tmpfs";
  }
  EXPECT_THAT(said(write_file(tiny / "large", std::string(128 << 10, 'x'))), HasSubstr("No space left on device"));
  fs::remove(tiny / "large");
  EXPECT_TRUE(log::configure(log::Level::kInfo, (tiny / "log").string()).ok());
  testing::internal::CaptureStderr();
  for (int line = 0; line < 100; ++line) log::info("line {} {}", line, std::string(1000, 'x'));
  const std::string rest = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(log::configure(log::Level::kWarn, "").ok());
  EXPECT_THAT(rest, AllOf(HasSubstr("error log.file: cannot write"), HasSubstr("No space left on device"),
                          HasSubstr("the log goes on here"), HasSubstr("line 99 ")));
  EXPECT_THAT(text_of(tiny / "log"), HasSubstr("line 0 "));
  EXPECT_EQ(umount(tiny.c_str()), 0);
}

TEST_F(Files, AFileIsReplacedOrAppendedTo) {
  const fs::path file = folder_ / "file";
  ASSERT_TRUE(write_file(file, "a long text").ok());
  ASSERT_TRUE(write_file(file, "short").ok());
  EXPECT_EQ(text_of(file), "short");
  ASSERT_TRUE(write_all(*open_to_append(file), " and more", "file").ok());
  EXPECT_EQ(text_of(file), "short and more");
  fs::create_symlink(file, folder_ / "link");  // no other user can have made it
  ASSERT_TRUE(write_file(folder_ / "link", "through").ok());
  EXPECT_EQ(text_of(file), "through");
  EXPECT_THAT(said(write_file(folder_ / "absent" / "file", "")),
              HasSubstr("No such file or directory; check the path"));
}

TEST_F(Files, ATextIsReadUpToALimit) {
  const fs::path path = folder_ / "text";
  const std::string text(100'000, 'x');
  std::ofstream(path) << text;
  EXPECT_EQ(test::required(read_text(path, "the text", 200'000)), text);
  EXPECT_EQ(test::required(read_text(path, "the text", 70'000)), text.substr(0, 70'000));
  EXPECT_EQ(test::required(read_text("/dev/null", "the text", 10)), "");
  EXPECT_EQ(test::required(read_text("/dev/zero", "the text", 3)), std::string(3, '\0'));
  const auto absent = read_text(folder_ / "absent", "the text T", 10);
  EXPECT_EQ(absent.status().code(), Code::kNotFound);
  EXPECT_EQ(absent.status().text(), "cannot read the text T: No such file or directory; check the path");
  const auto folder = read_text(folder_, "the text T", 10);
  EXPECT_EQ(folder.status().code(), Code::kSystem);
  EXPECT_EQ(folder.status().text(), "cannot read the text T: Is a directory; choose another file");
}

/// A different user may have made the name in advance, so that this user writes elsewhere.
TEST_F(Files, TrapsInSharedDirectoriesAreRefused) {
  const fs::path victim = folder_ / "victim";
  ASSERT_TRUE(write_file(victim, "precious").ok());
  const fs::path directory = shared();
  fs::create_symlink(victim, directory / "link");
  fs::create_hard_link(victim, directory / "hard");
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0666), 0);
  for (const auto& [name, why] : {std::pair("link", "is a symbolic link"), {"hard", "has several names"}}) {
    const auto says = AllOf(HasSubstr((directory / name).string() + " " + why),
                            HasSubstr("in a directory that other users may write; choose another directory"));
    EXPECT_THAT(said(write_file(directory / name, "spoilt")), says);
    EXPECT_THAT(said(open_to_append(directory / name).status()), says);
  }
  EXPECT_FALSE(write_file(directory / "fifo", "").ok());
  const Fd reader(::open((directory / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_THAT(said(write_file(directory / "fifo", "")), HasSubstr("is no regular file"));
  EXPECT_EQ(text_of(victim), "precious");
  ASSERT_TRUE(write_file(directory / "own", "mine").ok());
  EXPECT_EQ(fs::status(directory / "own").permissions(), fs::perms(0600));
  ASSERT_TRUE(write_file(directory / "own", "again").ok());
  EXPECT_EQ(text_of(directory / "own"), "again");
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a file of another user";
  ASSERT_EQ(chown((directory / "own").c_str(), 54321, 0), 0);
  EXPECT_FALSE(write_file(directory / "own", "theirs").ok());
  EXPECT_FALSE(open_to_append(directory / "own").ok());
  EXPECT_EQ(text_of(directory / "own"), "again");
}

TEST_F(Files, TheLogNeverWaitsForAReader) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Status without = log::configure(log::Level::kInfo, fifo.string());
  EXPECT_EQ(without.code(), Code::kConfig);
  EXPECT_THAT(said(without), HasSubstr("it is a FIFO without a reader"));
  const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_THAT(said(log::configure(log::Level::kInfo, fifo.string())), HasSubstr("is no regular file"));
  EXPECT_TRUE(log::configure(log::Level::kInfo, "/dev/null").ok());
  EXPECT_TRUE(log::configure(log::Level::kWarn, "").ok());
}

TEST_F(Files, ASecretIsOnlyForItsOwner) {
  const fs::path file = folder_ / "secret";
  ASSERT_TRUE(write_secret(file, "  word \n").ok());
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0600));
  EXPECT_EQ(test::required(read_secret(file)), "word");
  EXPECT_THAT(said(write_secret(file, "other")), HasSubstr("exists already"));
  for (const int mode : {0640, 0604, 0620, 0602, 0666}) {
    fs::permissions(file, fs::perms(mode));
    EXPECT_THAT(said(read_secret(file).status()), HasSubstr("other users may open it")) << mode;
  }
  fs::permissions(file, fs::perms(0400));
  EXPECT_TRUE(read_secret(file).ok());
  fs::permissions(file, fs::perms(0600));
  ASSERT_TRUE(write_file(file, " \n").ok());
  EXPECT_THAT(said(read_secret(file).status()), HasSubstr("is empty"));
  EXPECT_THAT(said(read_secret(folder_).status()), HasSubstr("is no regular file"));
  EXPECT_THAT(said(read_secret(folder_ / "absent").status()), HasSubstr("No such file"));
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a file of another user";
  ASSERT_EQ(chown(file.c_str(), 54321, 0), 0);
  EXPECT_THAT(said(read_secret(file).status()), HasSubstr("belongs to user 54321"));
}

}  // namespace
}  // namespace tutti::base
