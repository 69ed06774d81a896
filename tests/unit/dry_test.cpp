// SPDX-License-Identifier: Apache-2.0
// Dry runs beside jobs on the same topology. The jobs have fake back ends, so that GPUs are not needed.
#include "communicator/dry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "communicator/state.h"
#include "topology/document.h"
#include "unit/bootstrap_group.h"
#include "unit/fake_backend.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using communicator::DryCommunicator;
using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kFile = TUTTI_SOURCE_DIR "/configs/topologies/pcie-4gpu.yaml";
const std::vector<std::string> kGpus = {"0000:11:00.0", "0000:12:00.0", "0000:31:00.0", "0000:32:00.0"};

/// The ranks of a job, four on each machine.
struct Job {
  std::string device;
  uint32_t nodes = 1;
  Settings settings = {};

  std::string name() const {
    std::string text = device + ", machines: " + std::to_string(nodes);
    for (const auto& [key, value] : settings) text.append(", ").append(key).append("=").append(value);
    return text;
  }
};

config::Config config_of(const Job& job, const Settings& more = {}) {
  config::LoadOptions options;
  options.site_file = "";
  options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"device", job.device}};
  if (job.device == "host") options.settings.emplace_back("topology.host_ranks", "gpu");
  for (const Settings* settings : {&job.settings, &more}) {
    options.settings.insert(options.settings.end(), settings->begin(), settings->end());
  }
  return required(config::Config::load(options));
}

Result<std::unique_ptr<DryCommunicator>> dry_run(const Job& job, const std::string& file = kFile) {
  return DryCommunicator::create({required(topology::Document::load(file)), job.nodes, config_of(job)});
}

/// Creates the communicator of each rank, and calls check(rank, created, device) of each while its communicator exists.
void create_job(const Job& job, const std::string& file,
                const std::function<void(int rank, const Status& created, const FakeDevice& device)>& check) {
  const auto here = static_cast<int>(kGpus.size());
  const int ranks = here * static_cast<int>(job.nodes);
  const UniqueId id = bootstrap::make_id();
  std::deque<FakeDevice> devices(static_cast<size_t>(ranks));
  for (FakeDevice& device : devices) {
    device.link = TUTTI_LINK_P2P;
    for (int rank = 0; rank < ranks; ++rank) device.addresses.push_back(kGpus[static_cast<size_t>(rank % here)]);
  }
  bootstrap::in_ranks(ranks, [&](int rank) {
    FakeDevice& device = devices[static_cast<size_t>(rank)];
    const Settings own = {{"topology.file", file}, {"host", "host" + std::to_string(rank / here)}};
    const auto state = Communicator::State::create(id, rank, ranks, config_of(job, own), device.factory());
    check(rank, state.status(), device);
  });
}

/// Calls check(selector) with the selector of rank 0, while the job exists.
void run_job(const Job& job, const std::function<void(const tuner::Selector&)>& check,
             const std::string& file = kFile) {
  create_job(job, file, [&](int rank, const Status& created, const FakeDevice& device) {
    ASSERT_TRUE(created.ok()) << created.to_string();
    if (rank == 0) check(*device.selector);
  });
}

void expect_same_choices(const tuner::Choices& dry, const tuner::Choices& job) {
  EXPECT_EQ(dry.max_channels, job.max_channels);
  EXPECT_EQ(dry.links, job.links);
  EXPECT_EQ(dry.back_end, job.back_end);
  EXPECT_EQ(dry.ranks, job.ranks);
  EXPECT_EQ(dry.nodes, job.nodes);
  ASSERT_EQ(dry.networks.size(), job.networks.size());
  for (size_t i = 0; i < dry.networks.size(); ++i) EXPECT_EQ(dry.networks[i].name, job.networks[i].name);
  ASSERT_EQ(dry.algorithms.size(), job.algorithms.size());
  for (size_t i = 0; i < dry.algorithms.size(); ++i) {
    EXPECT_EQ(dry.algorithms[i].name, job.algorithms[i].name);
    EXPECT_EQ(dry.algorithms[i].channels, job.algorithms[i].channels) << dry.algorithms[i].name;
  }
  ASSERT_EQ(dry.protocols.size(), job.protocols.size());
  for (size_t i = 0; i < dry.protocols.size(); ++i) {
    EXPECT_EQ(dry.protocols[i].name, job.protocols[i].name);
    EXPECT_EQ(dry.protocols[i].properties.links, job.protocols[i].properties.links) << dry.protocols[i].name;
    EXPECT_EQ(dry.protocols[i].properties.devices, job.protocols[i].properties.devices) << dry.protocols[i].name;
    EXPECT_EQ(dry.protocols[i].declined, job.protocols[i].declined) << dry.protocols[i].name;
  }
}

/// The reason against each candidate, or its channels and its network: "3 channel(s), network 'socket'". The first line
/// may say that nothing can run.
std::map<std::string, std::string> verdicts(const tuner::Selector& selector, const tuner::Question& question) {
  static const std::regex kLine(R"( *(\S+ × \S+) +(?:(excluded: .*)|.*, (\d+ channel\(s\)(?:, network '\S+')?)))");
  std::map<std::string, std::string> verdicts;
  std::istringstream lines(required(selector.explain(question)));
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (verdicts.empty() && line == "  nothing can run this call:") continue;
    if (!std::regex_match(line, found, kLine)) ADD_FAILURE() << line;
    verdicts[found[1]] = found[2].matched ? found[2] : found[3];
  }
  return verdicts;
}

void expect_same_verdicts(const tuner::Selector& dry, const tuner::Selector& job) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll,
                                      Collective::kBroadcast, Collective::kSendRecv}) {
    for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 26}) {
      tuner::Question question;
      question.collective = collective;
      question.count = count;
      EXPECT_EQ(verdicts(dry, question), verdicts(job, question)) << to_string(collective) << " of " << count;
    }
  }
}

/// Plugins that were built without kernels state that no protocol runs on GPUs.
bool has_kernels(const tuner::Choices& choices) {
  return std::any_of(choices.protocols.begin(), choices.protocols.end(), [](const tuner::Protocol& protocol) {
    return (protocol.properties.devices & TUTTI_DEVICE_CUDA) != 0;
  });
}

bool names_protocol(const Job& job) {
  return std::any_of(job.settings.begin(), job.settings.end(), [](const auto& set) { return set.first == "protocol"; });
}

/// A job names a protocol that its GPUs cannot run. A dry run on a machine without CUDA predicts it all the same.
void expect_refusal_without_kernels(const Job& job) {
  create_job(job, kFile, [](int, const Status& created, const FakeDevice&) {
    EXPECT_EQ(created.code(), Code::kUnsupported);
    EXPECT_THAT(created.to_string(), testing::HasSubstr("this protocol does not run on GPUs"));
  });
}

TEST(DryRun, HasTheLimitsOfAJob) {
  std::vector<Job> jobs;
  for (const std::string device : {"host", "cuda"}) {
    for (const uint32_t nodes : {1u, 2u}) {
      jobs.push_back({device, nodes});
      jobs.push_back({device, nodes, {{"channels", "3"}}});
      jobs.push_back({device, nodes, {{"network", "socket," TUTTI_BINARY_DIR "/tests/conformance/tutti-net-mock.so"}}});
      jobs.push_back({device, nodes, {{"protocol", "simple"}, {"algorithm", "ring"}}});
    }
  }
  for (const Job& job : jobs) {
    SCOPED_TRACE(job.name());
    const auto dry = required(dry_run(job));
    const tuner::Choices& choices = dry->selector().choices();
    const bool lacks_kernels = job.device == "cuda" && !has_kernels(choices);
    if (lacks_kernels && names_protocol(job)) {
      expect_refusal_without_kernels(job);
      continue;
    }
    run_job(job, [&](const tuner::Selector& selector) {
      expect_same_choices(choices, selector.choices());
      if (lacks_kernels) return;
      EXPECT_EQ(choices.device, selector.choices().device);
      expect_same_verdicts(dry->selector(), selector);
    });
  }
}

/// A machine of four GPUs whose port is the loopback of this host, at 25 Gbit/s. `processors`: its mask, and perhaps a
/// further entry.
std::string file_with_loopback(const std::string& processors) {
  std::stringstream text;
  text << std::ifstream(kFile).rdbuf();
  std::string machine = text.str();
  const std::string port = "name: mlx5_0, dev: 0, speed: 100000";
  machine.replace(machine.find(port), port.size(), "name: lo, dev: 0, speed: 25000");
  const std::string mask = "\"ffffffff\"";
  machine.replace(machine.find(mask), mask.size(), processors);
  const auto file = std::filesystem::temp_directory_path() / ("dry_test." + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << machine;
  return file.string();
}

void expect_same_times(const tuner::Selector& dry, const tuner::Selector& job) {
  for (size_t i = 0; i < job.choices().networks.size(); ++i) {
    EXPECT_EQ(dry.choices().networks.at(i).gbs, job.choices().networks[i].gbs);
  }
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllToAll, Collective::kSendRecv}) {
    for (const uint64_t count : {1, 1 << 12, 1 << 24}) {
      const tuner::Question question{.collective = collective, .count = count};
      EXPECT_EQ(required(dry.explain(question)), required(job.explain(question)));
    }
  }
}

/// The times that both predict are equal, too, also if the four ranks of a machine share two processors
/// or a half.
TEST(DryRun, PredictsWhatAJobPredicts) {
  const Settings settings = {{"settings.net.socket.interface", "[=lo]"}};
  for (const char* processors : {"\"ffffffff\"", "\"00000003\"", "\"00000003\"\n    processors: 0.5"}) {
    const std::string file = file_with_loopback(processors);
    for (const uint32_t nodes : {1u, 2u}) {
      const Job job{"host", nodes, settings};
      SCOPED_TRACE(job.name() + ", processors: " + processors);
      const auto dry = required(dry_run(job, file));
      run_job(
          job, [&](const tuner::Selector& selector) { expect_same_times(dry->selector(), selector); }, file);
    }
    std::filesystem::remove(file);
  }
}

TEST(HardwareFigures, DecideInJobsAndDryRuns) {
  const auto file = std::filesystem::temp_directory_path() / ("dry_test." + std::to_string(getpid()) + ".figures");
  std::ofstream(file) << "tutti_hardware: 1\nmemory: {default: {latency_us: 1000}}\n";
  const Job plain{"host", 1};
  const Job slow{"host", 1, {{"hardware.file", file.string()}}};
  const auto dry = required(dry_run(slow));
  const tuner::Question question{.count = 1};
  const double plain_us = required(required(dry_run(plain))->selector().choose(question)).predicted_us;
  const double slow_us = required(dry->selector().choose(question)).predicted_us;
  EXPECT_LT(plain_us, 100);
  EXPECT_GT(slow_us, 1000);
  run_job(slow, [&](const tuner::Selector& selector) {
    EXPECT_EQ(required(selector.choose(question)).predicted_us, slow_us);
  });
  std::filesystem::remove(file);
}

TEST(HardwareFigures, MustBeEqualOnAllRanks) {
  const auto file = std::filesystem::temp_directory_path() / ("dry_test." + std::to_string(getpid()) + ".differs");
  std::ofstream(file) << "tutti_hardware: 1\nnetworks: {default: {latency_us: 7}}\n";
  const UniqueId id = bootstrap::make_id();
  std::deque<FakeDevice> devices(2);
  bootstrap::in_ranks(2, [&](int rank) {
    Job job{"host", 1};
    if (rank == 1) job.settings = {{"hardware.file", file.string()}};
    const auto state = Communicator::State::create(id, rank, 2, config_of(job, {{"topology.host_ranks", "numa"}}),
                                                   devices[static_cast<size_t>(rank)].factory());
    EXPECT_EQ(state.status().code(), Code::kMismatch);
    EXPECT_EQ(state.status().text(),
              "ranks disagree: config key 'hardware.networks.default.latency_us' is missing on rank 0 and 7 on rank 1");
  });
  std::filesystem::remove(file);
}

TEST(HardwareFigures, OfAFileThatIsNotThereEndADryRun) {
  const Status refused = dry_run({"host", 1, {{"hardware.file", "/no/figures.yaml"}}}).status();
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_NE(refused.text().find("hardware.file (application)"), std::string::npos) << refused.text();
  EXPECT_NE(refused.text().find("cannot read"), std::string::npos) << refused.text();
}

TEST(DryRun, HasTheChannelsOfItsDevice) {
  const auto channels = [](const Job& job) { return required(dry_run(job))->selector().choices().max_channels; };
  EXPECT_EQ(channels({"host", 1}), 1u);
  EXPECT_EQ(channels({"host", 2}), 1u);
  EXPECT_EQ(channels({"cuda", 1}), 64u);
  EXPECT_EQ(channels({"cuda", 2}), 4u);
  EXPECT_EQ(channels({"cuda", 2, {{"channels", "16"}}}), 16u);
  EXPECT_EQ(channels({"cuda", 1, {{"topology.host_ranks", "gpu"}}}), 64u) << "ranks on GPUs take no places of GPUs";
}

/// A process that carries data of GPUs to the network sees the flags of ll.
TEST(DryRun, HasTheProtocolsThatRelaysCarryBetweenGpus) {
  const auto works_over_network = [](const Job& job) {
    std::map<std::string, bool> works;
    const auto dry = required(dry_run(job));
    for (const tuner::Protocol& protocol : dry->selector().choices().protocols) {
      works[protocol.name] = (protocol.properties.links >> TUTTI_LINK_NETWORK & 1) != 0;
    }
    return works;
  };
  EXPECT_TRUE(works_over_network({"host", 2})["ll"]);
  EXPECT_TRUE(works_over_network({"cuda", 2})["ll"]);
  EXPECT_FALSE(works_over_network({"cuda", 2})["ll128"]);
  EXPECT_TRUE(works_over_network({"cuda", 2})["simple"]);
}

/// Between GPUs of different hosts, kernels take as long as between GPUs of one host.
TEST(DryRun, CountsTheKernelsOverTheNetwork) {
  const auto latency_us = [](const Job& job, const std::string& name) {
    const auto dry = required(dry_run(job));
    for (const tuner::Protocol& protocol : dry->selector().choices().protocols) {
      if (protocol.name == name) return protocol.properties.latency_us[TUTTI_LINK_NETWORK];
    }
    return -1.0;
  };
  EXPECT_EQ(latency_us({"host", 2}, "ll"), 0);
  EXPECT_NEAR(latency_us({"cuda", 2}, "simple") - latency_us({"host", 2}, "simple"), 3.5 + 10, 1e-9)
      << "kernels, and signals apart from the data";
  EXPECT_EQ(latency_us({"cuda", 2}, "ll"), 0);
  const auto dry = required(dry_run({"cuda", 2}));
  const auto protocol_of = [&](uint64_t count) {
    const tuner::Decision decision =
        required(dry->selector().choose({Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, count}));
    return dry->selector().choices().protocols[decision.protocol].name;
  };
  EXPECT_EQ(protocol_of(2), "ll");
  EXPECT_EQ(protocol_of(4 << 20), "simple");
}

TEST(DryRun, RefusesTransportsThatAJobRefuses) {
  const Job job{"host", 2, {{"transport", "shm"}}};
  const Status refused = dry_run(job).status();
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.text().find("but the ranks are on 2 hosts"), std::string::npos) << refused.text();
  EXPECT_TRUE(dry_run({"host", 1, {{"transport", "shm"}}}).ok());
  EXPECT_EQ(dry_run({"host", 2, {{"transport", "net"}}}).status().code(), Code::kUnsupported);
  const Status alone = dry_run({"host", 2, {{"plugins.network", "[]"}}}).status();
  EXPECT_EQ(alone.code(), Code::kConfig);
  EXPECT_NE(alone.text().find("plugins.network is empty (application)"), std::string::npos) << alone.text();
}

/// A rule with `ranks` counts the ranks of all machines, also for the networks that a dry run opens.
TEST(DryRun, ChoosesNetworksForAllRanks) {
  const std::string file = fmt::format("{}tutti-rules-{}.yaml", testing::TempDir(), getpid());
  const auto networks = [&](int ranks) {
    std::ofstream(file) << fmt::format(
        "plugins: {{network: [socket, ib]}}\nrules:\n  - match: {{ranks: {}}}\n    "
        "choose: {{network: ib}}\n",
        ranks);
    config::LoadOptions options;
    options.site_file = "";
    options.job_file = file;
    options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"device", "host"}};
    options.settings.emplace_back("topology.host_ranks", "gpu");
    const auto dry = required(DryCommunicator::create(
        {required(topology::Document::load(kFile)), 2, required(config::Config::load(options))}));
    std::vector<std::string> names;
    for (const tuner::Network& network : dry->selector().choices().networks) names.push_back(network.name);
    return names;
  };
  EXPECT_EQ(networks(8), (std::vector<std::string>{"socket", "ib"}));
  EXPECT_EQ(networks(4), std::vector<std::string>{"socket"}) << "four ranks are on each machine";
  std::filesystem::remove(file);
}

/// Rules ask for the device. So many ranks have no back end whose limits count.
TEST(DryRun, IsOnGpusAlsoBeyondTheRanksOfACommunicator) {
  const auto dry =
      required(DryCommunicator::create({required(topology::Document::load(kFile)), 300, config_of({"cuda"})}));
  EXPECT_TRUE(dry->selector().choices().on_gpu);
  EXPECT_EQ(dry->selector().choices().back_end, nullptr);
}

TEST(DryRun, RefusesDevicesThatAJobRefuses) {
  const Status no_gpu =
      DryCommunicator::create(
          {required(topology::Document::load(TUTTI_SOURCE_DIR "/tests/unit/no_gpu.yaml")), 1, config_of({"cuda"}), 2})
          .status();
  EXPECT_EQ(no_gpu.code(), Code::kConfig);
  EXPECT_NE(no_gpu.text().find("device is set to 'cuda' (application), but "), std::string::npos) << no_gpu.text();
}

TEST(DryRun, RefusesSlotsInMemoryOfGpusBesideFailOver) {
  for (const std::string wanted : {"net.direct", "net.pxn"}) {
    const Job job{"cuda", 2, {{wanted, "on"}, {"net.failover", "true"}}};
    const std::string why = wanted + " is on (application), but with net.failover (application) networks move";
    EXPECT_THAT(dry_run(job).status().text(), testing::HasSubstr(why));
    create_job(job, kFile, [&](int, const Status& created, const FakeDevice&) {
      EXPECT_EQ(created.code(), Code::kConfig);
      EXPECT_THAT(created.text(), testing::HasSubstr(why));
    });
  }
}

TEST(DryRun, RefusesAPathThroughASecondGpuWithoutSlotsInMemoryOfGpus) {
  const Job job{"cuda", 2, {{"net.pxn", "on"}, {"net.direct", "off"}}};
  EXPECT_THAT(dry_run(job).status().text(), testing::HasSubstr("with net.direct (application) networks move memory of "
                                                               "the host alone; set net.pxn to auto"));
}

/// The machine has four processors. Each message of an exchange waits for the turn of its receiver.
TEST(DryRun, KnowsTheTurnsOfRanksThatShareProcessors) {
  const auto time_of = [&](uint32_t ranks, const std::string& memory) {
    const std::string file = fmt::format("{}tutti-turns-{}.yaml", testing::TempDir(), getpid());
    std::ofstream(file) << fmt::format("tutti_hardware: 1\nmemory: {{default: {{{}}}}}\n", memory);
    const auto dry = required(DryCommunicator::create(
        {required(topology::Document::load(TUTTI_SOURCE_DIR "/tests/unit/no_gpu.yaml")), 1,
         config_of({"host", 1, {{"hardware.file", file}, {"topology.host_ranks", "numa"}}}), ranks}));
    std::filesystem::remove(file);
    const tuner::Question question{Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 2};
    for (const tuner::Verdict& verdict : required(dry->selector().verdicts(question))) {
      if (verdict.name == "direct/one-shot × simple") return verdict.decision.predicted_us;
    }
    return -1.0;
  };
  const auto turn_us = [&](uint32_t ranks) {
    return time_of(ranks, "gap_us: 0, switch_us: 200") - time_of(ranks, "gap_us: 0, switch_us: 100");
  };
  EXPECT_EQ(turn_us(4), 0) << "each rank has a processor";
  EXPECT_EQ(time_of(4, "gap_us: 10, switch_us: 100"), time_of(4, "gap_us: 0, switch_us: 0"));
  EXPECT_NEAR(turn_us(5), 100 * 0.25, 1e-6) << "one of four processors has a second rank";
  EXPECT_NEAR(turn_us(8), 100, 1e-6);
  EXPECT_NEAR(turn_us(16), 300, 1e-6) << "all others of the processor run before the last message is there";
  // Each of eight ranks sends to and receives from seven others, on four processors.
  EXPECT_NEAR(time_of(8, "gap_us: 10, switch_us: 1") - 1, 8 * 2 * 7 * (10 + 0.1) / 4.0, 1)
      << "half of the latency of simple at each end";
}

}  // namespace
}  // namespace tutti::test
