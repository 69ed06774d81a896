// SPDX-License-Identifier: Apache-2.0
#include "unit/bootstrap_group.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <thread>

#include "bootstrap/process.h"

namespace tutti::bootstrap {
namespace {

// Descriptors of a child, above the descriptors that the program opens itself.
constexpr int kChildReads = 200;
constexpr int kChildWrites = 201;
constexpr const char* kArgument = "TUTTI_TEST_CHILD";

}  // namespace

UniqueId make_id() {
  auto id = UniqueId::create("127.0.0.0/8");
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  return id.ok() ? *id : UniqueId();
}

void in_ranks(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

Group make_group(const UniqueId& id, int count) {
  Group group(static_cast<size_t>(count));
  in_ranks(count, [&](int rank) {
    auto joined = Bootstrap::join(id, rank, count, soon());
    EXPECT_TRUE(joined.ok()) << "rank " << rank << ": " << joined.status().to_string();
    if (joined.ok()) group[static_cast<size_t>(rank)] = *std::move(joined);
  });
  for (const auto& member : group)
    if (!member) ::abort();
  return group;
}

std::future<FailureReport> next_failure(Bootstrap& bootstrap) {
  auto promise = std::make_shared<std::promise<FailureReport>>();
  // A second call would throw in set_value() and end the program.
  bootstrap.set_callbacks({.on_failure = [promise](const FailureReport& report) { promise->set_value(report); }});
  return promise->get_future();
}

FailureReport wait_for(std::future<FailureReport>& failure) {
  if (failure.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return failure.get();
  ADD_FAILURE() << "no failure was reported";
  return {};
}

Stranger::Stranger(const UniqueId& id) {
  auto socket = base::connect_to(endpoint_of(id).value().address, soon());
  EXPECT_TRUE(socket.ok()) << socket.status().to_string();
  if (socket.ok()) socket_ = *std::move(socket);
}

std::vector<std::string> texts_of(const Result<std::vector<Answer>>& answers) {
  if (!answers.ok()) return {answers.status().to_string()};
  std::vector<std::string> texts;
  for (const Answer& answer : *answers) {
    switch (answer.state) {
      case Answer::State::kAnswered:
        texts.push_back(to_text(answer.bytes));
        break;
      case Answer::State::kSilent:
        texts.emplace_back("no answer");
        break;
      case Answer::State::kLeft:
        texts.emplace_back("left");
        break;
      case Answer::State::kLost:
        texts.emplace_back("lost");
        break;
    }
  }
  return texts;
}

Hello hello_to(const UniqueId& id, int rank, int rank_count) {
  Hello hello;
  hello.nonce = sdk::make_nonce().value();
  hello.tag = tag_of(endpoint_of(id).value().secret).value();
  hello.rank = rank;
  hello.rank_count = rank_count;
  hello.peer_loss_ms = 10000;
  hello.process = process_token();  // in the hub's process: no standby is expected there
  return hello;
}

void Stranger::join(const UniqueId& id, Hello hello, uint32_t timeout_ms) const {
  const Frame first = hear();
  ASSERT_EQ(first.header.kind, Kind::kChallenge);
  Challenge challenge;
  ASSERT_EQ(first.payload.size(), sizeof challenge);
  std::memcpy(&challenge, first.payload.data(), sizeof challenge);
  const Secret secret = endpoint_of(id).value().secret;
  hello.proof = prove_hello(secret, sdk::Side::kConnector, challenge.nonce, payload_of(hello)).value();
  say({.kind = Kind::kHello, .timeout_ms = timeout_ms}, payload_of(hello));
}

void Stranger::admit(const Secret& secret) const {
  Challenge challenge;
  challenge.nonce = sdk::make_nonce().value();
  say({.kind = Kind::kChallenge}, payload_of(challenge));
  const Frame hello = hear();
  ASSERT_EQ(hello.header.kind, Kind::kHello);
  const auto proof = prove_hello(secret, sdk::Side::kAcceptor, challenge.nonce, hello.payload);
  ASSERT_TRUE(proof.ok()) << proof.status().to_string();
  say({.kind = Kind::kWelcome}, payload_of(*proof));
}

Frame Stranger::hear(Kind kind) const {
  Frame frame = hear();
  while (frame.header.kind != kind && frame.header.kind != Kind()) frame = hear();
  return frame;
}

Frame Stranger::hear() const {
  Frame frame;
  if (!read(std::as_writable_bytes(std::span(&frame.header, 1)))) return {};
  frame.payload.resize(frame.header.payload_bytes);
  return read(frame.payload) ? frame : Frame();
}

bool Stranger::read(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    pollfd readable = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 60000) <= 0) return false;
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return false;
    if (count > 0) bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

void Stranger::say(std::span<const std::byte> bytes) const {
  // The hub may have hung up in the middle: that is not the test's business.
  (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void Stranger::say(Header header, std::span<const std::byte> payload) const {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  say(std::as_bytes(std::span(&header, 1)));
  say(payload);
}

bool Stranger::hears_end() const {
  std::array<char, 256> ignored;
  while (true) {
    pollfd readable = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 60000) <= 0) return false;
    const ssize_t count = ::recv(socket_.get(), ignored.data(), ignored.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
  }
}

Child::Child(const std::string& test, const std::string& argument) {
  std::array<int, 2> down;
  std::array<int, 2> up;
  if (::pipe2(down.data(), O_CLOEXEC) != 0 || ::pipe2(up.data(), O_CLOEXEC) != 0) ::abort();
  const base::Fd child_reads(down[0]);
  const base::Fd child_writes(up[1]);
  to_child_ = base::Fd(down[1]);
  from_child_ = base::Fd(up[0]);
  const std::string filter = "--gtest_filter=" + test;
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::dup2(child_reads.get(), kChildReads);
  ::dup2(child_writes.get(), kChildWrites);
  ::setenv(kArgument, argument.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): a forked child has one thread
  ::execl("/proc/self/exe", "test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
  ::_exit(127);
}

Child::~Child() {
  release();
  kill();
}

std::string Child::hear() const {
  std::string line;
  char c = 0;
  while (::read(from_child_.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait();
}

int Child::wait() {
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

std::string child_argument() {
  const char* argument = ::getenv(kArgument);  // NOLINT(concurrency-mt-unsafe): no thread sets it here
  return argument == nullptr ? "" : argument;
}

void say_to_parent(const std::string& line) {
  const std::string text = line + '\n';
  (void)!::write(kChildWrites, text.data(), text.size());
}

void wait_for_parent() {
  char c = 0;
  (void)!::read(kChildReads, &c, 1);
}

}  // namespace tutti::bootstrap
