// SPDX-License-Identifier: Apache-2.0
// The variables of launchers, and the places where their ranks meet.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "launcher/meeting.h"
#include "launcher/rank_assignment.h"

namespace tutti::launcher {
namespace {

using ::testing::HasSubstr;
using Table = std::map<std::string, std::string>;

Variables of(const Table& table) {
  return [&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  };
}

Result<std::optional<RankAssignment>> assignment_in(const Table& table) {
  return assignment_of(of(table));
}

std::string address_in(const Table& table) {
  const auto address = meeting_address({"a launcher", 1, 2, -1}, of(table));
  return address.ok() ? *address : std::string(address.status().text());
}

void expect_assignment(const Table& table, const std::string& launcher, int rank, int rank_count, int local_rank) {
  const auto assignment = assignment_in(table);
  ASSERT_TRUE(assignment.ok()) << assignment.status().text();
  ASSERT_TRUE(assignment->has_value());
  EXPECT_EQ((*assignment)->launcher, launcher);
  EXPECT_EQ((*assignment)->rank, rank);
  EXPECT_EQ((*assignment)->rank_count, rank_count);
  EXPECT_EQ((*assignment)->local_rank, local_rank);
}

void expect_error(const Table& table, const std::string& text) {
  const auto assignment = assignment_in(table);
  ASSERT_FALSE(assignment.ok());
  EXPECT_EQ(assignment.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(assignment.status().text()), HasSubstr(text));
}

TEST(LauncherPlace, NoVariables) {
  const auto assignment = assignment_in({});
  ASSERT_TRUE(assignment.ok());
  EXPECT_FALSE(assignment->has_value());
}

TEST(LauncherPlace, ARankAloneIsNoLauncher) {
  const auto assignment = assignment_in({{"RANK", "3"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  ASSERT_TRUE(assignment.ok());
  EXPECT_FALSE(assignment->has_value());
}

TEST(LauncherPlace, EachLauncher) {
  expect_assignment({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}, "torchrun", 3, 8, 1);
  expect_assignment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun", 0, 1, -1);
  expect_assignment({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
                    "Open MPI's mpirun", 1, 2, 0);
  expect_assignment({{"SLURM_PROCID", "7"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_LOCALID", "3"}}, "Slurm's srun", 7,
                    16, 3);
  expect_assignment({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}}, "MPICH's mpiexec", 2, 4, 2);
}

TEST(LauncherPlace, AnInnerLauncherHidesSlurm) {
  const Table slurm = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  Table both = {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}};
  both.insert(slurm.begin(), slurm.end());
  expect_assignment(both, "Open MPI's mpirun", 5, 8, -1);
  both = {{"RANK", "9"}, {"WORLD_SIZE", "16"}};
  both.insert(slurm.begin(), slurm.end());
  expect_assignment(both, "torchrun", 9, 16, -1);
}

TEST(LauncherPlace, HalfAnAssignmentIsAnError) {
  expect_error({{"RANK", "1"}, {"MASTER_ADDR", "node0"}},
               "the variables RANK and MASTER_ADDR are set, but WORLD_SIZE is not");
  expect_error({{"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}},
               "the variables WORLD_SIZE and LOCAL_RANK are set, but RANK is not");
  expect_error({{"RANK", "1"}, {"TUTTI_MEETING", "node0:29500"}}, "WORLD_SIZE is not");
  Table slurm = {{"RANK", "1"}, {"MASTER_ADDR", "node0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  expect_assignment(slurm, "Slurm's srun", 2, 4, -1);
}

TEST(LauncherPlace, ContradictionsAreErrors) {
  expect_error({{"RANK", "8"}, {"WORLD_SIZE", "8"}}, "RANK=8 is no rank of WORLD_SIZE=8; torchrun sets both");
  expect_error({{"RANK", "-1"}, {"WORLD_SIZE", "8"}}, "RANK=-1 is no number of 0 or more");
  expect_error({{"RANK", "1x"}, {"WORLD_SIZE", "8"}}, "RANK=1x is no number");
  expect_error({{"RANK", ""}, {"WORLD_SIZE", "8"}}, "RANK= is no number");
  expect_error({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "4"}},
               "LOCAL_RANK=4 is no rank on a host of WORLD_SIZE=4; torchrun sets both");
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "RANK=0 is no rank of WORLD_SIZE=0");
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "a"}}, "LOCAL_RANK=a is no number");
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE=99999999999 is no number");
  const Table both = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  expect_error(both, "torchrun says rank 0 of 4 (RANK, WORLD_SIZE), and Open MPI's mpirun says rank 1 of 4");
}

TEST(LauncherPlace, EqualStatementsOfTwoLaunchersAreNoError) {
  expect_assignment({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
                    "torchrun", 1, 4, -1);
}

TEST(LauncherMeeting, FirstHostOfSlurmsList) {
  EXPECT_EQ(first_host("login"), "login");
  EXPECT_EQ(first_host("login,node1"), "login");
  EXPECT_EQ(first_host("node[003-010,12],login"), "node003");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("rack[1-2]-ib,x"), "rack1-ib");
  EXPECT_EQ(first_host("x,node[1-2]"), "x");
  EXPECT_EQ(first_host("node[3"), "node3");
  EXPECT_EQ(first_host(""), "");
}

TEST(LauncherMeeting, Addresses) {
  EXPECT_EQ(address_in({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}), "10.0.0.1:29501");
  EXPECT_EQ(address_in({{"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "29500"}}), "[fd00::1]:29501");
  EXPECT_EQ(address_in({{"MASTER_ADDR", "[fd00::1]"}, {"MASTER_PORT", "1"}}), "[fd00::1]:2");
  EXPECT_EQ(address_in({{"TUTTI_MEETING", "a:1"}, {"MASTER_ADDR", "b"}, {"MASTER_PORT", "2"}}), "a:1");
  EXPECT_EQ(address_in({{"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_JOB_ID", "1000"}, {"SLURM_STEP_ID", "3"}}),
            "n1:27003");  // 20000 + (1000 · 31 + 3) mod 12000
}

TEST(LauncherMeeting, AddressesThatAreWrong) {
  EXPECT_THAT(address_in({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}}),
              HasSubstr("MASTER_PORT=65535 is no number of 0..65534"));
  EXPECT_THAT(address_in({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}}), HasSubstr("MASTER_PORT=x is no number"));
  EXPECT_THAT(address_in({{"SLURM_STEP_NODELIST", "n1"}}), HasSubstr("SLURM_JOB_ID= is no number"));
  EXPECT_THAT(address_in({{"MASTER_ADDR", "a"}}), HasSubstr("a launcher started this process and states no place"));
}

/// A file for the secret. The variables of the secret are unset before and after each test.
class LauncherSecret : public testing::Test {
 protected:
  LauncherSecret() {
    unset();
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    ::close(file);
  }
  ~LauncherSecret() override {
    unset();
    ::unlink(path_.c_str());
  }
  /// The secret that these variables state; null: unset.
  Result<std::string> secret_of(const char* in_file, const char* in_variable) const {
    unset();
    if (in_file != nullptr) {
      std::ofstream(path_) << in_file << '\n';
      ::setenv("TUTTI_ID_SECRET_FILE", path_.c_str(), 1);
    }
    if (in_variable != nullptr) ::setenv("TUTTI_ID_SECRET", in_variable, 1);
    return secret_of_environment("the test");
  }
  const std::string& path() const { return path_; }

 private:
  static void unset() {
    ::unsetenv("TUTTI_ID_SECRET_FILE");
    ::unsetenv("TUTTI_ID_SECRET");
  }
  std::string path_ = testing::TempDir() + "launcher_secret_XXXXXX";
};

constexpr const char* kSecret = "00112233445566778899aabbccddeeff";

TEST_F(LauncherSecret, ComesFromEitherVariable) {
  EXPECT_EQ(*secret_of(kSecret, nullptr), kSecret);
  EXPECT_EQ(*secret_of(nullptr, kSecret), kSecret);
  EXPECT_EQ(*secret_of(nullptr, nullptr), std::string(32, '0'));
}

TEST_F(LauncherSecret, MayBeStatedTwice) {
  EXPECT_EQ(*secret_of(kSecret, kSecret), kSecret);
  EXPECT_EQ(*secret_of(kSecret, "00112233445566778899AABBCCDDEEFF"), kSecret);
}

TEST_F(LauncherSecret, DifferentStatementsAreAnError) {
  const auto secret = secret_of(kSecret, "ff112233445566778899aabbccddeeff");
  EXPECT_EQ(secret.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(secret.status().text(),
            "TUTTI_ID_SECRET_FILE=" + path() + " and TUTTI_ID_SECRET state different secrets; unset one of them");
  const auto half = secret_of(kSecret, "confidential");
  EXPECT_EQ(half.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(half.status().text()), HasSubstr("TUTTI_ID_SECRET: the secret of a unique id is 32"));
}

}  // namespace
}  // namespace tutti::launcher
