// SPDX-License-Identifier: Apache-2.0
// Files that processes give each other.
#include "base/fd_post.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "unit/required.h"

namespace tutti::test {
namespace {

using base::Fd;
using base::FdPost;
using testing::HasSubstr;

Status goes_on() {
  return {};
}

/// A file that holds a number.
Fd file_of(uint64_t number) {
  Fd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
  return fd;
}
uint64_t number_in(const Fd& fd) {
  uint64_t number = 0;
  EXPECT_EQ(pread(fd.get(), &number, sizeof number, 0), static_cast<ssize_t>(sizeof number));
  return number;
}

struct Group {
  explicit Group(size_t members) {
    for (size_t i = 0; i < members; ++i) {
      posts.push_back(test::required(FdPost::open()));
      addresses.push_back(posts.back().address());
    }
  }
  std::vector<FdPost> posts;
  std::vector<FdPost::Address> addresses;
};

/// Member m gives files_of(m) files, with numbers that say so.
void check_exchange(uint32_t members, const std::function<uint32_t(uint32_t)>& files_of) {
  Group group(members);
  std::vector<std::thread> threads;
  for (uint32_t self = 0; self < members; ++self) {
    threads.emplace_back([&, self] {
      std::vector<Fd> files;
      std::vector<FdPost::Item> items;
      for (uint32_t i = 0; i < files_of(self); ++i) {
        files.push_back(file_of(self * 1000 + i));
        items.push_back({files.back().get(), self * 2000 + i});
      }
      const auto parcels =
          group.posts[self].exchange(group.addresses, self, items, base::time_in(std::chrono::seconds(60)), goes_on);
      ASSERT_TRUE(parcels.ok()) << parcels.status().to_string();
      for (uint32_t other = 0; other < members; ++other) {
        const auto& parcel = (*parcels)[other];
        ASSERT_EQ(parcel.files.size(), other == self ? 0 : files_of(other));
        ASSERT_EQ(parcel.notes.size(), parcel.files.size());
        for (uint32_t i = 0; i < parcel.files.size(); ++i) {
          EXPECT_EQ(number_in(parcel.files[i]), other * 1000 + i);
          EXPECT_EQ(parcel.notes[i], other * 2000 + i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FdPost, GivesFilesToAllOthers) {
  check_exchange(2, [](uint32_t) { return 1; });
  check_exchange(4, [](uint32_t member) { return member; });
  check_exchange(1, [](uint32_t) { return 3; });
}

/// More letters than a socket holds, from all to all; and more files than a letter takes. Not so many that the usual
/// limit of a process, 1024, is near.
TEST(FdPost, WaitsWhereSocketsAreFull) {
  check_exchange(14, [](uint32_t) { return 2; });
  check_exchange(3, [](uint32_t member) { return member == 1 ? 130 : 5; });
}

TEST(FdPost, EndsForOthersWhereOneFails) {
  Group group(3);
  std::vector<std::thread> others;
  for (const uint32_t self : {0u, 2u}) {
    others.emplace_back([&, self] {
      const auto parcels =
          group.posts[self].exchange(group.addresses, self, {}, base::time_in(std::chrono::minutes(5)), goes_on);
      EXPECT_EQ(parcels.status().code(), Code::kRemote);
      // from rank 1, or from a rank that ended because of rank 1
      EXPECT_THAT(std::string(parcels.status().text()), HasSubstr("could not give or take files"));
    });
  }
  const FdPost::Item closed{-1, 0};
  const auto parcels =
      group.posts[1].exchange(group.addresses, 1, {&closed, 1}, base::time_in(std::chrono::minutes(5)), goes_on);
  EXPECT_FALSE(parcels.ok());
  for (std::thread& other : others) other.join();
}

TEST(FdPost, EndsWhenToldTo) {
  Group group(2);
  int asked = 0;
  const auto parcels = group.posts[0].exchange(group.addresses, 0, {}, base::time_in(std::chrono::minutes(5)), [&] {
    return ++asked < 3 ? Status() : Status(Code::kAborted, "enough");
  });
  EXPECT_EQ(parcels.status().code(), Code::kAborted);
}

TEST(FdPost, LetsStrangersTalk) {
  Group group(2);
  const Fd stranger(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  socklen_t bytes = sizeof name;
  // The name is no secret: it stands in /proc/net/unix.
  char text[32];
  std::snprintf(text, sizeof text, "tutti-%016llx", static_cast<unsigned long long>(group.addresses[0].name));
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, text, std::strlen(text));
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(text));
  for (const size_t length : {size_t{1}, size_t{24}, size_t{536}, size_t{1000}}) {
    const std::vector<char> noise(length, 1);
    ASSERT_EQ(sendto(stranger.get(), noise.data(), length, 0, reinterpret_cast<const sockaddr*>(&name), bytes),
              static_cast<ssize_t>(length));
  }
  std::thread other([&] {
    const auto deadline = base::time_in(std::chrono::seconds(60));
    EXPECT_TRUE(group.posts[1].exchange(group.addresses, 1, {}, deadline, goes_on).ok());
  });
  const Fd file = file_of(7);
  const FdPost::Item item{file.get(), 7};
  const auto deadline = base::time_in(std::chrono::seconds(60));
  EXPECT_TRUE(group.posts[0].exchange(group.addresses, 0, {&item, 1}, deadline, goes_on).ok());
  other.join();
}

/// A letter without files, as a member would write it.
struct Forged {
  uint64_t secret;
  uint32_t sender, total, first, count;
  std::array<uint64_t, 64> notes;
};

void send_to(const FdPost::Address& address, const Forged& letter) {
  const Fd stranger(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  char text[32];
  std::snprintf(text, sizeof text, "tutti-%016llx", static_cast<unsigned long long>(address.name));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, text, std::strlen(text));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(text));
  ASSERT_EQ(sendto(stranger.get(), &letter, sizeof letter, 0, reinterpret_cast<const sockaddr*>(&name), bytes),
            static_cast<ssize_t>(sizeof letter));
}

/// Each of the letters would end member 1's wait for the file of member 0.
TEST(FdPost, BelievesNoLetterThatDoesNotFit) {
  constexpr uint32_t kGivesUp = ~uint32_t{0};
  Group group(2);
  const FdPost::Address& to = group.addresses[1];
  send_to(to, {to.secret ^ 1, 0, kGivesUp, 0, 0, {}});  // without the secret
  send_to(to, {to.secret, 2, kGivesUp, 0, 0, {}});      // from a member that does not exist
  send_to(to, {to.secret, 0, 0, 5, 0, {}});             // with files behind the files that came
  const auto deadline = base::time_in(std::chrono::seconds(60));
  std::thread other([&] {
    const Fd file = file_of(7);
    const FdPost::Item item{file.get(), 7};
    EXPECT_TRUE(group.posts[0].exchange(group.addresses, 0, {&item, 1}, deadline, goes_on).ok());
  });
  const auto parcels = group.posts[1].exchange(group.addresses, 1, {}, deadline, goes_on);
  other.join();
  ASSERT_TRUE(parcels.ok()) << parcels.status().to_string();
  ASSERT_EQ((*parcels)[0].files.size(), 1u);
  EXPECT_EQ(number_in((*parcels)[0].files[0]), 7u);
}

TEST(FdPost, SaysWhoIsMissing) {
  Group group(3);
  std::atomic<bool> has_given = false;
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    static_cast<void>(
        group.posts[1].exchange(group.addresses, 1, {}, base::time_in(std::chrono::minutes(5)), [&]() -> Status {
          has_given = true;  // called after it has sent as much as possible
          return is_over ? Status(Code::kAborted, "enough") : Status();
        }));
  });
  while (!has_given) std::this_thread::yield();
  const auto parcels =
      group.posts[0].exchange(group.addresses, 0, {}, base::time_in(std::chrono::milliseconds(50)), goes_on);
  is_over = true;
  other.join();
  EXPECT_EQ(parcels.status().code(), Code::kTimeout);
  EXPECT_THAT(std::string(parcels.status().text()), HasSubstr("rank 2 gave no files"));
  group.posts.pop_back();
  const auto gone = group.posts[0].exchange(group.addresses, 0, {}, base::time_in(std::chrono::seconds(60)), goes_on);
  EXPECT_EQ(gone.status().code(), Code::kRemote);
  EXPECT_THAT(std::string(gone.status().text()), HasSubstr("rank 2"));
}

}  // namespace
}  // namespace tutti::test
