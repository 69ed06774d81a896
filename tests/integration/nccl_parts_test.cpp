// SPDX-License-Identifier: Apache-2.0
// Parts of libnccl.so.2 that need no GPU: reductions of an application, variables of files, messages to oneself.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "nccl/errors.h"
#include "nccl/operation.h"
#include "nccl/variables.h"

namespace tutti::nccl {

// A function of comm.cpp, which needs CUDA.
ncclResult_t check_handle(const ncclComm* comm, std::string_view /*call*/) {
  return comm != nullptr && comm->magic == ncclComm::kAlive ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t check_usable(const ncclComm* comm, std::string_view call) {
  return check_handle(comm, call);
}

namespace {

using testing::HasSubstr;

// Reductions

TEST(Reductions, KnowTheBuiltInOperators) {
  const Reductions reductions;
  const std::pair<ncclRedOp_t, ReduceOp> all[] = {{ncclSum, ReduceOp::kSum},
                                                  {ncclProd, ReduceOp::kProd},
                                                  {ncclMax, ReduceOp::kMax},
                                                  {ncclMin, ReduceOp::kMin},
                                                  {ncclAvg, ReduceOp::kAvg}};
  for (const auto& [op, expected] : all) {
    const auto found = reductions.find(op, DataType::kFloat16);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->reduction.op, expected);
    EXPECT_EQ(found->scalar, nullptr);
  }
  EXPECT_FALSE(reductions.find(ncclNumOps, DataType::kFloat16));
  EXPECT_FALSE(reductions.find(static_cast<ncclRedOp_t>(0x7fffffff), DataType::kFloat16));
}

TEST(Reductions, AreOfTheTypeThatTheyWereMadeFor) {
  Reductions reductions;
  const auto op = reductions.add(DataType::kFloat32, 0x3f000000, nullptr);
  ASSERT_TRUE(op);
  const auto found = reductions.find(*op, DataType::kFloat32);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reduction.op, ReduceOp::kPreMulSum);
  EXPECT_EQ(found->reduction.scalar, 0x3f000000u);
  EXPECT_FALSE(reductions.find(*op, DataType::kFloat64));
  const int on_gpu = 0;
  const auto read_later = reductions.add(DataType::kInt8, 0, &on_gpu);
  EXPECT_NE(*read_later, *op);
  EXPECT_EQ(reductions.find(*read_later, DataType::kInt8)->scalar, &on_gpu);
}

TEST(Reductions, OfAnotherCommunicatorAreUnknown) {
  Reductions mine;
  Reductions other;
  const auto made = mine.add(DataType::kFloat32, 1, nullptr);
  const auto foreign = other.add(DataType::kFloat32, 2, nullptr);
  EXPECT_NE(*made, *foreign) << "both are the first ones";
  EXPECT_FALSE(mine.find(*foreign, DataType::kFloat32));
  EXPECT_FALSE(mine.remove(*foreign));
  EXPECT_EQ(mine.find(*made, DataType::kFloat32)->reduction.scalar, 1u);
  EXPECT_EQ(other.find(*foreign, DataType::kFloat32)->reduction.scalar, 2u);
}

TEST(Reductions, AreGoneWhenRemovedAndTheirPlacesAreUsedAgain) {
  Reductions reductions;
  const auto first = reductions.add(DataType::kFloat32, 1, nullptr);
  const auto second = reductions.add(DataType::kFloat32, 2, nullptr);
  EXPECT_TRUE(reductions.remove(*first));
  EXPECT_FALSE(reductions.remove(*first));
  EXPECT_FALSE(reductions.find(*first, DataType::kFloat32));
  EXPECT_EQ(reductions.find(*second, DataType::kFloat32)->reduction.scalar, 2u);
  EXPECT_EQ(reductions.add(DataType::kFloat32, 3, nullptr), first);
  EXPECT_FALSE(reductions.remove(ncclSum)) << "built in";
}

TEST(Reductions, AreLimited) {
  Reductions reductions;
  std::vector<ncclRedOp_t> made;
  while (const auto op = reductions.add(DataType::kInt32, made.size(), nullptr)) made.push_back(*op);
  EXPECT_EQ(made.size(), 4096u);
  EXPECT_EQ(reductions.find(made.back(), DataType::kInt32)->reduction.scalar, 4095u);
  EXPECT_TRUE(reductions.remove(made[7]));
  EXPECT_EQ(reductions.add(DataType::kInt32, 1, nullptr), made[7]) << "one may be made for each that is gone";
  EXPECT_FALSE(reductions.add(DataType::kInt32, 1, nullptr));
}

TEST(Reductions, ThroughTheCallsOfNccl) {
  ncclComm comm;
  ncclRedOp_t op = ncclSum;
  double half = 0.5;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat64, ncclScalarHostImmediate, &comm), ncclSuccess);
  EXPECT_EQ(comm.reductions.find(op, DataType::kFloat64)->reduction.scalar, 0x3fe0000000000000u);
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &half, ncclNumTypes, ncclScalarHostImmediate, &comm), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat64, ncclScalarHostImmediate, &comm), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(op, &comm), ncclSuccess);
  EXPECT_EQ(ncclRedOpDestroy(op, &comm), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, &comm), ncclInvalidArgument);
}

TEST(Types, AreThoseOfNccl) {
  EXPECT_EQ(type_of(ncclFloat32), DataType::kFloat32);
  EXPECT_EQ(type_of(ncclFloat8e5m2), DataType::kFloat8E5M2);
  EXPECT_FALSE(type_of(ncclNumTypes));
}

// Messages to oneself

class OwnMessages : public testing::Test {
 protected:
  OwnMessages() { comms_[0].rank = comms_[1].rank = 1; }
  Operation message(int comm, bool receives, int peer = 1) {
    return {.comm = &comms_[comm],
            .collective = Collective::kSendRecv,
            .input = nullptr,
            .output = nullptr,
            .count = 1,
            .type = DataType::kInt8,
            .reduction = {},
            .root = peer,
            .receives = receives};
  }
  static ncclResult_t check(const std::vector<Operation>& operations) { return check_own_messages(operations); }
  static constexpr bool kSends = false;
  static constexpr bool kReceives = true;

 private:
  ncclComm comms_[2];
};

TEST_F(OwnMessages, ComeInPairs) {
  EXPECT_EQ(check({}), ncclSuccess);
  EXPECT_EQ(check({message(0, kSends), message(0, kReceives)}), ncclSuccess);
  EXPECT_EQ(check({message(0, kReceives), message(0, kSends)}), ncclSuccess) << "in any order";
  EXPECT_EQ(check({message(0, kSends)}), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1 sends to itself without the partner"));
  EXPECT_EQ(check({message(0, kReceives)}), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1 receives from itself without the partner"));
  EXPECT_EQ(check({message(0, kSends), message(0, kReceives), message(0, kSends)}), ncclInvalidUsage);
}

TEST_F(OwnMessages, AreThoseOfOneCommunicator) {
  EXPECT_EQ(check({message(0, kSends), message(1, kReceives)}), ncclInvalidUsage);
  EXPECT_EQ(check({message(0, kSends), message(1, kReceives), message(0, kReceives), message(1, kSends)}), ncclSuccess);
}

TEST_F(OwnMessages, AreNoMessagesToOthersAndNoCollectives) {
  EXPECT_EQ(check({message(0, kSends, 0)}), ncclSuccess);
  EXPECT_EQ(check({message(0, kReceives, 2)}), ncclSuccess);
  Operation broadcast = message(0, kSends);
  broadcast.collective = Collective::kBroadcast;
  EXPECT_EQ(check({broadcast}), ncclSuccess) << "its root is this rank";
}

// Variables. Files are read once per process, so each case has one of its own.

class VariablesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("tutti-variables-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    write(".nccl.conf", "NCCL_OF_HOME=home\nNCCL_OF_BOTH=home\n");
    write("own.conf",
          "NCCL_OF_OWN=own\nNCCL_OF_BOTH=own\nNCCL_TWICE=first\nNCCL_TWICE=second\n"
          "#NCCL_COMMENT=1\nOTHER=1\nNCCL_LINE\nNCCL_EMPTY=\nNCCL_EQUALS=a=b\n");
    setenv("HOME", folder_.c_str(), 1);
    unsetenv("NCCL_CONF_FILE");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void use_own_file() { setenv("NCCL_CONF_FILE", (folder_ / "own.conf").c_str(), 1); }
  /// Ends a process in which all these variables have these values; "": the variable is not set.
  static void expect_and_exit(const std::vector<std::pair<const char*, const char*>>& expected) {
    for (const auto& [name, value] : expected) {
      const std::string found = variable(name).value_or("");
      if (found == value) continue;
      std::fprintf(stderr, "%s is '%s', must be '%s'\n", name, found.c_str(), value);
      std::_Exit(1);
    }
    std::_Exit(0);
  }

 private:
  void write(const char* name, const char* text) { std::ofstream(folder_ / name) << text; }
  std::filesystem::path folder_;
};
using VariablesDeathTest = VariablesTest;

#define EXPECT_VARIABLES(...) EXPECT_EXIT(expect_and_exit(__VA_ARGS__), testing::ExitedWithCode(0), "")

TEST_F(VariablesDeathTest, ComeFromTheFileInTheHomeFolder) {
  EXPECT_VARIABLES({{"NCCL_OF_HOME", "home"}, {"NCCL_OF_BOTH", "home"}, {"NCCL_OF_OWN", ""}});
}

TEST_F(VariablesDeathTest, ComeFromTheNamedFileInsteadOfTheOneInTheHomeFolder) {
  use_own_file();
  EXPECT_VARIABLES({{"NCCL_OF_OWN", "own"}, {"NCCL_OF_BOTH", "own"}, {"NCCL_OF_HOME", ""}});
}

TEST_F(VariablesDeathTest, ThatStandTwiceHaveTheFirstValue) {
  use_own_file();
  EXPECT_VARIABLES({{"NCCL_TWICE", "first"}});
}

TEST_F(VariablesDeathTest, OfTheProcessWin) {
  use_own_file();
  setenv("NCCL_OF_OWN", "process", 1);
  setenv("NCCL_TWICE", "", 1);
  EXPECT_VARIABLES({{"NCCL_OF_OWN", "process"}, {"NCCL_TWICE", ""}});
  unsetenv("NCCL_OF_OWN");
  unsetenv("NCCL_TWICE");
}

TEST_F(VariablesDeathTest, AreWholeLinesWithAName) {
  use_own_file();
  EXPECT_VARIABLES({{"#NCCL_COMMENT", ""},
                    {"NCCL_COMMENT", ""},
                    {"OTHER", ""},
                    {"NCCL_LINE", ""},
                    {"NCCL_EMPTY", ""},
                    {"NCCL_EQUALS", "a=b"}});
}

TEST_F(VariablesDeathTest, AreListedOnceAndSorted) {
  use_own_file();
  setenv("NCCL_OF_OWN", "process", 1);
  const auto list_and_exit = [] {
    const std::vector<std::string> names = variables();
    const std::vector<std::string> expected = {"NCCL_CONF_FILE", "NCCL_EMPTY",  "NCCL_EQUALS",
                                               "NCCL_OF_BOTH",   "NCCL_OF_OWN", "NCCL_TWICE"};
    for (const std::string& name : names) std::fprintf(stderr, "%s\n", name.c_str());
    std::_Exit(std::includes(names.begin(), names.end(), expected.begin(), expected.end()) &&
                       std::is_sorted(names.begin(), names.end()) &&
                       std::count(names.begin(), names.end(), "NCCL_OF_OWN") == 1
                   ? 0
                   : 1);
  };
  EXPECT_EXIT(list_and_exit(), testing::ExitedWithCode(0), "");
  unsetenv("NCCL_OF_OWN");
}

}  // namespace
}  // namespace tutti::nccl
