// SPDX-License-Identifier: Apache-2.0
// net_bench: latency and bandwidth of a network plugin between two processes, without the rest of Tutti.
//
// The client leads: it tells the server each test, and prints one line of JSON per figure.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "net/network.h"
#include "net/telephone.h"
#include "net/tests.h"

namespace tutti::net_bench {
namespace {

constexpr uint32_t kMostConnections = 64;
constexpr uint32_t kLeastWindow = 2;
// Limit of the memory of outstanding messages, over all connections.
constexpr uint64_t kMostMemory = uint64_t{1} << 30;

struct Request {
  std::string network = "socket";
  std::vector<std::string> settings;
  uint32_t device = 0;
  uint16_t serve = 0;
  std::string peer;
  std::vector<std::string> tests = {"latency", "one_way", "both_ways"};
  std::vector<uint64_t> sizes = {8, 4096, 65536, 1 << 20};
  std::vector<uint32_t> connections = {1};
  uint32_t window = 8;
  double seconds = 0.5;
  int64_t spin_us = -1;
};

const std::map<std::string, Test> kTests = {
    {"latency", Test::kLatency}, {"one_way", Test::kOneWay}, {"both_ways", Test::kBothWays}};

Request parse(int argc, char** argv) {
  Request request;
  CLI::App app("Latency and bandwidth of a network plugin between two processes.", "net_bench");
  app.add_option("--network", request.network, "Name of the plugin (default socket)");
  app.add_option("--set", request.settings, "key=value of the configuration; may be repeated");
  app.add_option("--device", request.device, "Number of the device in the plugin's list (default 0)");
  auto* serve = app.add_option("--serve", request.serve, "Wait at this TCP port for the client, and follow it");
  app.add_option("--peer", request.peer, "host:port of the server; without it, a server is forked on this machine")
      ->excludes(serve);
  app.add_option("--tests", request.tests, "latency, one_way, both_ways (default all)")->delimiter(',');
  app.add_option("--sizes", request.sizes, "Bytes of a message: 8,4K,1M (default 8,4K,64K,1M)")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--connections", request.connections, "Connections in each direction, 1 to 64 (default 1)")
      ->delimiter(',')
      ->check(CLI::Range(1u, kMostConnections));
  app.add_option("--window", request.window, "Messages outstanding on a connection, 1 to 32 (default 8)")
      ->check(CLI::Range(1u, TUTTI_NET_MIN_REQUESTS));
  app.add_option("--seconds", request.seconds, "Time of one figure, about (default 0.5)")->check(CLI::Range(0.01, 60.));
  app.add_option("--spin-us", request.spin_us,
                 "Sleep on the network's event descriptor after so many microseconds without movement (default: poll)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  for (const std::string& test : request.tests) {
    if (!kTests.contains(test)) throw std::runtime_error(fmt::format("there is no test '{}'; see --help", test));
  }
  return request;
}

std::unique_ptr<Network> open(const Request& request) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const std::string& setting : request.settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) throw std::runtime_error(fmt::format("--set {}: needs key=value", setting));
    settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return std::make_unique<Network>(request.network, std::move(settings), request.device,
                                   Patience{std::chrono::microseconds(request.spin_us)});
}

/// Makes connections in both directions, in turn: both sides number them equally.
NetComms join(Network& network, Telephone& line, uint32_t count, bool leads) {
  line.say(network.handle());
  const auto there = line.hear<tutti_net_handle>();
  NetComms comms;
  for (uint32_t i = 0; i < 2 * count; ++i) {
    const bool connects = (i < count) == leads;
    (connects ? comms.out : comms.in).push_back(connects ? network.connect(there) : network.accept());
    line.say(i);
    if (line.hear<uint32_t>() != i) throw std::runtime_error("the two processes are out of step");
  }
  return comms;
}

/// The server's report on a test.
struct Report {
  double cpu_seconds = 0;
};

class Client {
 public:
  Client(Network& network, Telephone line, uint32_t connections) : network_(network), line_(std::move(line)) {
    line_.say(connections);
    comms_ = join(network, line_, connections, true);
  }
  ~Client() {
    try {
      line_.say(Order{});
    } catch (const std::runtime_error&) {  // the server is gone already
    }
  }

  Outcome run(const Order& order) {
    line_.say(order);
    Outcome outcome = carry_out(network_, comms_, order, true);
    outcome.cpu_seconds += line_.hear<Report>().cpu_seconds;
    return outcome;
  }

  /// As many messages as take about `seconds`.
  Outcome run_for(Order& order, double seconds) {
    for (order.count = 16;; order.count *= 4) {
      const Outcome trial = run(order);
      if (trial.seconds < seconds / 8) continue;
      const double times = std::max(1.0, seconds / trial.seconds);
      order.count = static_cast<uint64_t>(static_cast<double>(order.count) * times);
      return run(order);
    }
  }

 private:
  Network& network_;
  Telephone line_;
  NetComms comms_;
};

double percentile(std::vector<double>& samples, double part) {
  const auto place = samples.begin() + static_cast<long>(part * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), place, samples.end());
  return *place;
}

void report_latency(const Order& order, Outcome& outcome) {
  const nlohmann::json row = {{"test", "latency"},
                              {"bytes", order.bytes},
                              {"us", percentile(outcome.samples, 0.5)},
                              {"us_p99", percentile(outcome.samples, 0.99)},
                              {"cpu_us", outcome.cpu_seconds * 1e6 / static_cast<double>(2 * order.count)}};
  fmt::print("{}\n", row.dump());
}

void report_bandwidth(const std::string& test, const Order& order, const Outcome& outcome) {
  const double directions = order.test == Test::kBothWays ? 2 : 1;
  const double gigabytes =
      directions * static_cast<double>(order.bytes) * static_cast<double>(order.count) * order.connections * 1e-9;
  const nlohmann::json row = {{"test", test},
                              {"bytes", order.bytes},
                              {"connections", order.connections},
                              {"window", order.window},
                              {"gbs", gigabytes / outcome.seconds},
                              {"cpu_s_per_gb", outcome.cpu_seconds / gigabytes}};
  fmt::print("{}\n", row.dump());
}

void lead(Network& network, Telephone line, const Request& request) {
  Client client(network, std::move(line), *std::max_element(request.connections.begin(), request.connections.end()));
  for (const std::string& name : request.tests) {
    Order order{.test = kTests.at(name)};
    for (const uint64_t size : request.sizes) {
      order.bytes = std::max<uint64_t>(size, 1);
      order.connections = 1;
      if (order.test == Test::kLatency) {
        Outcome outcome = client.run_for(order, request.seconds);
        report_latency(order, outcome);
        std::fflush(stdout);
        continue;
      }
      for (const uint32_t connections : request.connections) {
        order.connections = connections;
        const uint64_t room = kMostMemory / (order.bytes * connections);
        order.window = static_cast<uint32_t>(std::clamp<uint64_t>(room, kLeastWindow, request.window));
        report_bandwidth(name, order, client.run_for(order, request.seconds));
        std::fflush(stdout);
      }
    }
  }
}

void follow(Network& network, Telephone line) {
  const auto connections = line.hear<uint32_t>();
  if (connections == 0 || connections > kMostConnections) throw std::runtime_error("the client is of another version");
  const NetComms comms = join(network, line, connections, false);
  for (;;) {
    const auto order = line.hear<Order>();
    if (order.test == Test::kEnd) return;
    line.say(Report{carry_out(network, comms, order, false).cpu_seconds});
  }
}

/// Both sides on this machine: a child serves.
int run_pair(const Request& request) {
  auto [here, there] = Telephone::pair();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork a server");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) std::_Exit(1);
    const Telephone closed = std::move(here);
    const auto network = open(request);
    follow(*network, std::move(there));
    return 0;
  }
  { const Telephone closed = std::move(there); }
  {
    const auto network = open(request);
    lead(*network, std::move(here), request);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run(int argc, char** argv) {
  const Request request = parse(argc, argv);
  if (request.serve == 0 && request.peer.empty()) return run_pair(request);
  const auto network = open(request);
  if (request.serve != 0) {
    follow(*network, Telephone::wait_at(request.serve));
  } else {
    lead(*network, Telephone::call(request.peer), request);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::net_bench

int main(int argc, char** argv) {
  try {
    return tutti::net_bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "net_bench: {}\n", error.what());
    return 1;
  }
}
