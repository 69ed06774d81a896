// SPDX-License-Identifier: Apache-2.0
// The start of communicators with many ranks: time, memory, descriptors. The ranks are threads of a few processes of
// this machine. For each number of ranks, the program prints a row of a table. Variables TUTTI_* set the configuration.
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostProcesses = 64;

struct Arguments {
  std::vector<int> ranks{4, 16, 64, 256, 1024};
  int processes = 4;
  int hosts = 1;
  std::vector<std::string> namespaces;
  std::string interface = "=lo";
};

/// Memory that all processes of a job share.
struct Shared {
  pthread_barrier_t barrier;
  std::array<char, 256> id;
  struct Process {
    double created_s;  ///< the time until the last communicator of the process exists
    double called_s;   ///< the time from then until the first call of all ranks has ended
    long memory_kib;
    int descriptors;
    uint64_t sent_bytes;  ///< over all devices of the host but the loopback, until the last communicator exists
    bool failed;
  };
  std::array<Process, kMostProcesses> processes;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs `work(i)` for each i below `count`, each in a thread. Whether all succeeded; the first failure is printed.
template <class Work>
bool in_threads(int count, const Work& work) {
  std::vector<tutti::Status> ended(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { ended[static_cast<size_t>(i)] = work(i); });
  for (std::thread& thread : threads) thread.join();
  const auto failed =
      std::find_if(ended.begin(), ended.end(), [](const tutti::Status& status) { return !status.ok(); });
  if (failed != ended.end()) fmt::print(stderr, "start_up: {}\n", failed->to_string());
  return failed == ended.end();
}

tutti::Status add_numbers(tutti::Communicator& communicator) {
  int64_t sum = communicator.rank() + 1;
  TUTTI_TRY(communicator.all_reduce(&sum, &sum, 1, tutti::DataType::kInt64, tutti::ReduceOp::kSum));
  const int64_t size = communicator.size();
  if (sum == size * (size + 1) / 2) return {};
  return {tutti::Code::kInternal, fmt::format("the sum of {} ranks is wrong: {}", size, sum)};
}

int open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// The calling thread and its later threads use the network of a namespace that `ip netns` made.
bool enter(const std::string& name) {
  const int file = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = file >= 0 && setns(file, CLONE_NEWNET) == 0;
  if (!entered) fmt::print(stderr, "start_up: cannot enter the network namespace {}: {}\n", name, std::strerror(errno));
  if (file >= 0) close(file);
  return entered;
}

/// Bytes that the devices of the calling thread's network have sent, without the loopback.
uint64_t sent_bytes() {
  std::ifstream table("/proc/thread-self/net/dev");
  std::string line;
  uint64_t sum = 0;
  while (std::getline(table, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with(" lo")) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::array<uint64_t, 9> columns{};  // eight of reception, then the bytes sent
    for (uint64_t& column : columns) numbers >> column;
    sum += columns.back();
  }
  return sum;
}

/// The ranks `first` to `first + count - 1` of a job.
bool run_ranks(const Arguments& arguments, Shared& shared, int size, int first, int count, Shared::Process& mine) {
  std::vector<std::optional<tutti::Communicator>> ranks(static_cast<size_t>(count));
  const auto id = tutti::UniqueId::from_string(shared.id.data());
  if (!id.ok()) return false;
  const uint64_t sent_before = sent_bytes();
  const auto start = Clock::now();
  const bool created = in_threads(count, [&](int i) -> tutti::Status {
    const int rank = first + i;
    tutti::Options options;
    if (arguments.hosts > 1)
      options.settings.emplace_back("host", fmt::format("host{}", rank * arguments.hosts / size));
    auto communicator = tutti::Communicator::create(*id, rank, size, options);
    if (!communicator.ok()) return communicator.status();
    ranks[static_cast<size_t>(i)].emplace(std::move(*communicator));
    return {};
  });
  mine.created_s = seconds_since(start);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  mine.memory_kib = usage.ru_maxrss;
  mine.descriptors = open_descriptors();
  pthread_barrier_wait(&shared.barrier);
  mine.sent_bytes = sent_bytes() - sent_before;
  if (!created) return false;
  const auto call = Clock::now();
  const bool called = in_threads(count, [&](int i) { return add_numbers(*ranks[static_cast<size_t>(i)]); });
  mine.called_s = seconds_since(call);
  return called && in_threads(count, [&](int i) {
           ranks[static_cast<size_t>(i)].reset();
           return tutti::Status();
         });
}

/// One process of a job. The first process makes the id.
bool run_process(const Arguments& arguments, Shared& shared, int size, int index) {
  std::optional<tutti::UniqueId> id;
  const auto& namespaces = arguments.namespaces;
  const size_t place = static_cast<size_t>(index) * namespaces.size() / static_cast<size_t>(arguments.processes);
  const bool placed = namespaces.empty() || enter(namespaces[place]);
  if (placed && index == 0) {
    auto made = tutti::UniqueId::create(arguments.interface);
    if (made.ok()) {
      id = *made;
      std::strncpy(shared.id.data(), made->to_string().c_str(), shared.id.size() - 1);
    } else {
      fmt::print(stderr, "start_up: {}\n", made.status().to_string());
    }
  }
  pthread_barrier_wait(&shared.barrier);
  const int first = size * index / arguments.processes;
  const int count = size * (index + 1) / arguments.processes - first;
  return run_ranks(arguments, shared, size, first, count, shared.processes[static_cast<size_t>(index)]);
}

Shared* make_shared(int processes) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("start_up: no shared memory");
  auto* shared = new (memory) Shared();
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(processes));
  pthread_barrierattr_destroy(&attributes);
  return shared;
}

bool run_job(const Arguments& arguments, int size) {
  Shared* const shared = make_shared(arguments.processes);
  std::vector<pid_t> children;
  for (int index = 0; index < arguments.processes; ++index) {
    const pid_t child = fork();
    if (child == 0) _exit(run_process(arguments, *shared, size, index) ? 0 : 1);
    if (child < 0) throw std::runtime_error("start_up: no process can be started");
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    good = waitpid(child, &status, 0) == child && status == 0 && good;
  }
  double created_s = 0;
  double called_s = 0;
  long memory_kib = 0;
  int descriptors = 0;
  for (int i = 0; i < arguments.processes; ++i) {
    const Shared::Process& process = shared->processes[static_cast<size_t>(i)];
    created_s = std::max(created_s, process.created_s);
    called_s = std::max(called_s, process.called_s);
    memory_kib += process.memory_kib;
    descriptors += process.descriptors;
  }
  if (good) {
    fmt::print("| {} | {:.2f} | {:.2f} | {:.1f} | {:.1f} |", size, created_s, called_s,
               static_cast<double>(memory_kib) / 1024 / size, static_cast<double>(descriptors) / size);
    if (!arguments.namespaces.empty())
      fmt::print(" {:.1f} |", static_cast<double>(shared->processes[0].sent_bytes) / (1 << 20));
    fmt::print("\n");
    std::fflush(stdout);
  }
  munmap(shared, sizeof *shared);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("The start of communicators with many ranks, which are threads of a few processes of this machine.");
  app.add_option("--ranks", arguments.ranks, "Numbers of ranks (default 4 16 64 256 1024)");
  app.add_option("--processes", arguments.processes, "Processes of a job (default 4)")
      ->check(CLI::Range(1, kMostProcesses));
  app.add_option("--hosts", arguments.hosts, "Pretend that the ranks run on so many hosts (default 1)");
  app.add_option("--netns", arguments.namespaces,
                 "Network namespaces (ip netns) of the hosts; the table then shows what the first host sends");
  app.add_option("--interface", arguments.interface, "Where the ranks meet (default =lo)");
  CLI11_PARSE(app, argc, argv);
  const bool many = !arguments.namespaces.empty();
  if (many) arguments.hosts = static_cast<int>(arguments.namespaces.size());
  fmt::print(
      "| ranks | all communicators exist after s | first all_reduce s | memory MiB a rank | descriptors a rank |{}\n",
      many ? " sent by the first host MiB |" : "");
  fmt::print("|---:|---:|---:|---:|---:|{}\n", many ? "---:|" : "");
  bool good = true;
  for (const int size : arguments.ranks) good = run_job(arguments, size) && good;
  return good ? 0 : 1;
}
