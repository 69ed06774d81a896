// SPDX-License-Identifier: Apache-2.0
// Drives one table of libnccl-net-tutti.so over TCP on this host, as NCCL does.
//
// Usage: nccl_net_export_v<version> FILE. Exit code 0, or a sentence on stderr and a different code.
#include <thread>

#include "export_traffic.h"

namespace {

const char* file = nullptr;
Clock::time_point before = Clock::now();  // the present scene began

void check_devices(const Plugin& plugin, int most_receives) {
  require(plugin.name() == "Tutti", "the plugin is not called Tutti");
  const int count = plugin.devices();
  require(count >= 1, "there is no device");
  for (int device = 0; device < count; ++device) {
    const Properties properties = plugin.properties(device);
    const std::string place = "device " + std::to_string(device);
    require(properties.name != nullptr && properties.name[0] != '\0', place + " has no name");
    require((properties.memory & 1) != 0, place + " takes no memory of the host");
    require(properties.receives == most_receives, place + " takes " + std::to_string(properties.receives) + " buffers");
    require(properties.comms > 0 && properties.speed >= 0 && properties.latency >= 0, place + " has odd properties");
#if MOCK_SINCE(7)
    require(properties.type == 0, place + " is for GPUs");
#endif
#if MOCK_SINCE(9)
    require(properties.part_count == 1 && properties.parts[0] == device, place + " is not its only part");
    require(properties.most_bytes > 0 && properties.most_bytes <= size_t{1} << 40, place + " has an odd limit");
#endif
#if MOCK_SINCE(12)
    require(properties.plane == -1, place + " has a plane");
#endif
  }
  require(plugin.properties_code(count) != 0, "there is a device too many");
}

/// Streams over several connections, while another thread makes and closes connections.
void test_streams(int rank, const Link& link, const Link& other) {
  Plugin plugin(file);
  succeed(plugin.init(), "init");
  check_devices(plugin, 1);
  std::string failure;
  std::thread service([&] {
    try {
      for (uint32_t round = 0; round < 5; ++round) {
        carry(plugin, other, make_pairs(plugin, other, 1), static_cast<uint32_t>(rank), 1000 + 2 * round, 3);
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  try {
    const auto pairs = make_pairs(plugin, link, 4);
    carry(plugin, link, pairs, static_cast<uint32_t>(rank), 0, 200);
  } catch (...) {
    service.join();
    throw;
  }
  service.join();
  require(failure.empty(), "thread of setup: " + failure);
}

/// A second communicator has a context of its own; before version 11, both share the context of the process.
void test_two_communicators(int rank, const Link& link, const Link& /*other*/) {
  Plugin first(file), second(file);
  succeed(first.init(), "init");
  succeed(second.init(), "the second init");
  const auto pairs = make_pairs(first, link, 1);
  {
    const auto others = make_pairs(second, link, 1);
    carry(second, link, others, static_cast<uint32_t>(rank), 10, 20);
  }
  carry(first, link, pairs, static_cast<uint32_t>(rank), 20, 20);
}

/// Grouped receives: the messages of a group are sent in a different order.
void test_tags(int rank, const Link& link, const Link& /*other*/) {
  constexpr uint32_t kGroups = 60;
  Plugin plugin(file);
  succeed(plugin.init(), "init");
  check_devices(plugin, 8);
  const auto pairs = make_pairs(plugin, link, 1);
  const Deadline deadline("a group arrives");
  for (uint32_t group = 0; group < kGroups; ++group) {
    const uint32_t count = 1 + mixed(group, 3) % 8;
    std::vector<std::unique_ptr<Buffer>> in, out;
    std::vector<void*> data, regions, sends;
    std::vector<size_t> rooms;
    std::vector<int> tags;
    for (uint32_t tag = 0; tag < count; ++tag) {
      const auto bytes = [&](int of) { return bytes_of(static_cast<uint32_t>(of), group * 8 + tag) % 70'000; };
      in.push_back(std::make_unique<Buffer>(plugin, pairs[0]->receiver(), bytes(1 - rank) + tag));
      out.push_back(std::make_unique<Buffer>(plugin, pairs[0]->sender(), bytes(rank)));
      out.back()->fill(static_cast<uint32_t>(rank), group * 8 + tag);
      data.push_back(in.back()->data());
      regions.push_back(in.back()->region());
      rooms.push_back(in.back()->bytes());
      tags.push_back(static_cast<int>(tag));
    }
    void* receive = nullptr;
    for (; receive == nullptr; deadline.check()) {
      receive = plugin.receive(pairs[0]->receiver(), data, rooms, tags, regions);
    }
    for (uint32_t turn = 0; turn < count; deadline.check()) {
      const uint32_t tag = (turn + group) % count;
      void* const request = plugin.send(pairs[0]->sender(), out[tag]->data(), out[tag]->bytes(), static_cast<int>(tag),
                                        out[tag]->region());
      if (request == nullptr) continue;
      sends.push_back(request);
      ++turn;
    }
    std::array<int, 8> sizes{};
    for (bool done = false; !done; deadline.check()) {
      done = plugin.test(receive, sizes.data());
      std::erase_if(sends, [&](void* request) { return plugin.test(request, nullptr); });
    }
    for (; !sends.empty(); deadline.check()) {
      std::erase_if(sends, [&](void* request) { return plugin.test(request, nullptr); });
    }
    for (uint32_t tag = 0; tag < count; ++tag) {
      const size_t bytes = in[tag]->bytes() - tag;
      require(sizes.at(tag) == static_cast<int>(bytes), "a message of a group has a wrong length");
      in[tag]->check(static_cast<uint32_t>(1 - rank), group * 8 + tag, bytes);
    }
  }
  link.meet();
}

/// Connections are closed with requests outstanding. Their buffers are free afterwards, and new connections work.
void test_close(int rank, const Link& link, const Link& /*other*/) {
  Plugin plugin(file);
  succeed(plugin.init(), "init");
  {
    const auto pairs = make_pairs(plugin, link, 2);
    std::vector<std::unique_ptr<Buffer>> receives, sends;
    for (int i = 0; i < 8; ++i) {
      Buffer& buffer = *receives.emplace_back(std::make_unique<Buffer>(plugin, pairs[0]->receiver(), 5000));
      require(plugin.receive(pairs[0]->receiver(), {buffer.data()}, {5000}, {7}, {buffer.region()}) != nullptr,
              "a receive is not taken");
    }
    for (uint32_t i = 0; i < 4; ++i) {
      Buffer& buffer = *sends.emplace_back(std::make_unique<Buffer>(plugin, pairs[1]->sender(), 4 << 20));
      buffer.fill(i, i);
      require(plugin.send(pairs[1]->sender(), buffer.data(), buffer.bytes(), 7, buffer.region()) != nullptr,
              "a send is not taken");
    }
    link.meet();
    pairs[0]->close_receiver();
    pairs[1]->close_sender();
    for (const auto& buffer : receives) {
      buffer->forget_region();
      require(buffer->is_poisoned_from(0), "a receive that was closed has written");
    }
    for (const auto& buffer : sends) buffer->forget_region();
    link.meet();
  }
  carry(plugin, link, make_pairs(plugin, link, 1), static_cast<uint32_t>(rank), 30, 10);
}

/// If the peer closes, an outstanding receive fails, and the log names both ends.
void test_lost_peer(int /*rank*/, const Link& link, const Link& /*other*/) {
  Plugin plugin(file);
  succeed(plugin.init(), "init");
  const auto pairs = make_pairs(plugin, link, 1);
  Buffer buffer(plugin, pairs[0]->receiver(), 5000);
  void* const request = plugin.receive(pairs[0]->receiver(), {buffer.data()}, {buffer.bytes()}, {7}, {buffer.region()});
  require(request != nullptr, "a receive is not taken");
  link.meet();
  pairs[0]->close_sender();
  const Deadline deadline("the loss of the peer is reported");
  int code = 0;
  for (; code == 0; deadline.check()) code = plugin.test_code(request);
  require(code == kRemoteError, "the loss of the peer is result " + std::to_string(code));
  require(last_warning().find("NET/Tutti : network 'socket' test fails on a connection to '") == 0,
          "the warning of the loss is: " + last_warning());
  link.meet();
}

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread runs while variables are set
/// A wrong setting: init fails, and says so in one line that holds `text`.
bool is_refused(const char* variable, const std::string& value, const std::string& text) {
  return passes_alone(variable, [&] {
    setenv(variable, value.c_str(), 1);
    Plugin plugin(file);
    const int code = plugin.init();
    require(code == 2 || code == 3, value + ": init returns " + std::to_string(code));
    require(last_warning().find(text) != std::string::npos, value + ": the warning is: " + last_warning());
    require(warnings.size() == 1, value + ": there are several warnings");
    require(plugin.devices() == 0, value + ": there are devices");
    unsetenv(variable);
    succeed(plugin.init(), "init after a failure");
    require(plugin.devices() > 0, "there is no device after a failure");
  });
}

// NOLINTEND(concurrency-mt-unsafe)

bool refuses() {
  bool passes = is_refused("TUTTI_NET", "nonsense", "network plugin 'nonsense' not found");
  passes &= is_refused("TUTTI_CONFIG", "/nowhere/job.yaml", "/nowhere/job.yaml");
  passes &= is_refused("TUTTI_NET_RECEIVES", "many", "TUTTI_NET_RECEIVES: 'many' is not a number of buffers");
  passes &= is_refused("TUTTI_NET", std::string("nccl:") + file, "is libnccl-net-tutti.so itself");
  return passes;
}

bool report(const char* name, bool passes) {
  const std::chrono::duration<double> seconds = Clock::now() - std::exchange(before, Clock::now());
  std::printf("%s: %s after %.1f s\n", name, passes ? "passes" : "FAILS", seconds.count());
  std::fflush(stdout);
  return passes;
}

}  // namespace

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread runs while variables are set
int main(int count, char** words) {
  if (count != 2) return std::fputs("usage: nccl_net_export FILE\n", stderr), 2;
  file = words[1];
  setenv("TUTTI_SITE_CONFIG", "", 1);
  setenv("TUTTI_NET", "socket", 1);
  setenv("TUTTI_SETTINGS_NET_SOCKET_INTERFACE", "=lo", 1);
  bool passes = report("streams", passes_in_two(test_streams));
  passes &= report("two communicators", passes_in_two(test_two_communicators));
  passes &= report("close", passes_in_two(test_close));
  passes &= report("lost peer", passes_in_two(test_lost_peer));
  setenv("TUTTI_NET_RECEIVES", "8", 1);
  passes &= report("tags", passes_in_two(test_tags));
  unsetenv("TUTTI_NET_RECEIVES");
  unsetenv("TUTTI_NET");
  passes &= report("wrong settings", refuses());
  return passes ? 0 : 1;
}
// NOLINTEND(concurrency-mt-unsafe)
