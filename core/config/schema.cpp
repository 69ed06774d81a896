// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tutti::config {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kGiB = kKiB * kKiB * kKiB;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kDay = 86'400'000 * kMillisecond;

Key choice(std::string name, std::string value, std::vector<std::string> allowed, std::string help,
           bool must_agree = true) {
  return {std::move(name),    Type::kChoice, std::move(value), std::move(help),
          std::move(allowed), INT64_MIN,     INT64_MAX,        must_agree};
}
Key number(Type type, std::string name, std::string value, int64_t minimum, int64_t maximum, std::string help,
           bool must_agree = true) {
  return {std::move(name), type, std::move(value), std::move(help), {}, minimum, maximum, must_agree};
}
Key words(Type type, std::string name, std::string value, std::string help, bool must_agree = true) {
  return {std::move(name), type, std::move(value), std::move(help), {}, INT64_MIN, INT64_MAX, must_agree};
}
Key name(std::string key, std::string help) {
  return {std::move(key), Type::kText, "auto", std::move(help), {}, 1, INT64_MAX, true};
}

const std::vector<std::string> kLevels = {"off", "error", "warn", "info", "debug", "trace"};

std::vector<Key> make_keys() {
  return {
      choice("device", "host", {"host", "cuda"},
             "The device of buffers and computations: host is this machine's processors, cuda its GPUs."),
      name("algorithm",
           "Algorithm of every collective: auto, a name (ring), name/variant (direct/two-shot), a plan file "
           "(mine.yaml) or a folder of plan files (plans/)."),
      name("protocol", "Protocol of every call: auto, or a name (simple, ll)."),
      words(Type::kNames, "network", "auto",
            "Networks between hosts, best first; auto: of plugins.network, as many as calls and rules need."),
      choice("transport", "auto", {"auto", "shm", "net"},
             "The link between ranks of one host: shm is shared memory, also between GPUs; net is the network; auto is "
             "shared memory, or the links of GPUs that reach each other."),
      number(Type::kInteger, "channels", "0", 0, 64, "Channels of a collective at most; 0 lets Tutti choose."),
      words(Type::kList, "plugins.path", "[]", "Directories searched for plugins, before all others.", false),
      words(Type::kList, "plugins.algorithm", "[ring, tree, direct, hier]",
            "Algorithm plugins to load, by name or absolute path."),
      words(Type::kList, "plugins.protocol", "[simple, ll, ll128, copy]", "Protocol plugins to load."),
      words(Type::kList, "plugins.network", "[socket]",
            "Network plugins to load when a network is needed, best first."),
      words(Type::kList, "plugins.tuner", "[table]",
            "Tuner plugin to load: table follows a table measured on equal machines, and the model elsewhere."),
      choice("plugins.on_missing", "error", {"error", "next"},
             "When a named plugin cannot serve: fail, or go on with the next one."),
      choice("plugins.trust", "owner", {"owner", "any"},
             "owner: plugins and configuration files that other users may change are refused if root runs Tutti, and "
             "warned of otherwise; any: they are used. A file cannot vouch for itself.",
             false),
      number(Type::kDuration, "timeouts.bootstrap", "30s", kMillisecond, kDay,
             "How long ranks wait for each other to join."),
      number(Type::kDuration, "timeouts.peer_loss", "10s", 100 * kMillisecond, kDay,
             "The longest cut of a connection that fails no call. A dead process is noticed at once."),
      number(Type::kDuration, "timeouts.operation", "10m", 10 * kMillisecond, kDay,
             "How long a call may go without any progress before it fails with a verdict."),
      number(Type::kDuration, "timeouts.warn", "10s", 0, kDay,
             "After how long without progress a warning names the waiting and the missing ranks; then after twice as "
             "long, and so on. 0s: never.",
             false),
      number(Type::kInteger, "shm.slots", "8", 2, 64,
             "Messages of shm.slot_size that a connection in shared memory holds."),
      number(Type::kSize, "shm.slot_size", "128KiB", 64, kGiB, "Payload of the largest message in shared memory."),
      choice("shm.single_copy", "auto", {"auto", "on", "off"},
             "Buffers of peers that a rank may read instead of slots: auto, in its own process; on, also in other "
             "processes through the kernel, which fails where the kernel forbids it; off, none."),
      number(Type::kSize, "shm.single_copy_min", "1MiB", 1, kGiB,
             "Calls on blocks shorter than this always go through slots."),
      number(Type::kInteger, "p2p.slots", "0", 0, 64, "Slots of a connection between GPUs; 0: the protocol decides."),
      number(Type::kSize, "p2p.slot_size", "0", 0, kGiB,
             "Payload of one slot between GPUs, for protocols that move bulk data; 0: the protocol decides."),
      number(Type::kInteger, "wait.spin", "0", 0, 100'000'000,
             "Polls of a wait before it yields the processor; 0 chooses by how many ranks share it.", false),
      number(Type::kInteger, "wait.yield", "0", 0, 1'000'000,
             "Yields of a wait before it sleeps; 0 chooses by how many ranks share a processor.", false),
      words(Type::kList, "bootstrap.interface", "[]",
            "Interfaces the ranks meet on: names, prefixes (eth), =exact, subnets (10.0.0.0/8), ^excluded.", false),
      number(Type::kBool, "bootstrap.shrink", "true", 0, 1,
             "Keep a port of each process open, at which ranks can meet again to shrink a communicator."),
      choice("log.level", "warn", kLevels, "The least level of the lines in the log.", false),
      words(Type::kText, "log.file", "", "File of the log; empty: stderr. %h is the host's name, %p the process id.",
            false),
      number(Type::kBool, "check.plans", "true", 0, 1, "Prove a plan right when it is first used."),
      number(Type::kBool, "check.calls", "true", 0, 1, "Notice when ranks make different calls."),
      number(Type::kBool, "check.plugins", "false", 0, 1, "Hold calls of a network plugin to its contract.", false),
      number(Type::kBool, "check.data", "false", 0, 1, "Compare a checksum of each message over a network."),
  };
}

/// Settings of connections between hosts.
std::vector<Key> make_network_keys() {
  return {
      number(Type::kInteger, "net.slots", "8", 2, 64, "Slots of a connection over a network."),
      number(Type::kSize, "net.slot_size", "120KiB", 64, kGiB, "Payload of one slot over a network."),
      number(Type::kBool, "net.failover", "false", 0, 1,
             "Make a connection that breaks again over another device or network."),
      words(Type::kList, "net.racks", "[]",
            "Racks, each NAME=PATTERN PATTERN with patterns (node1*) of the names of its hosts."),
      words(Type::kText, "net.inside_rack", "",
            "Network of all connections between hosts of one rack of net.racks; empty: the network of the call."),
      choice("net.direct", "auto", {"auto", "on", "off"},
             "Whether a network moves memory of GPUs itself: auto, where its devices register it; on, or fail; off."),
      choice(
          "net.pxn", "auto", {"auto", "on", "off"},
          "Whether messages by a port pass through memory of a second GPU that is nearer to the port: auto, where the "
          "network takes dmabufs; on, also where it takes addresses, or fail; off, through no second GPU."),
      number(Type::kInteger, "net.polling_threads", "0", 0, 64,
             "Threads of a rank that move data between its GPU and a network; 0: half of the processors that the rank "
             "has for itself, 1 to 4.",
             false),
  };
}

/// Settings of the machine of a rank.
std::vector<Key> make_machine_keys() {
  return {
      words(Type::kText, "topology.file", "",
            "This machine's topology or a part, NCCL's XML or our YAML: wins over what is discovered.", false),
      choice("topology.host_ranks", "numa", {"numa", "gpu"},
             "The places of host ranks: their NUMA nodes, or the GPUs of topology.file in PCI order.", false),
      words(
          Type::kText, "hardware.file", "",
          "Hardware figures (latencies, bandwidths) that replace figures of the built-in table, which predictions use.",
          false),
      choice(
          "affinity", "auto", {"auto", "ignore_mask", "off"},
          "Whether Tutti's threads run on the processors of the rank's NUMA node, which is that of its GPU: auto, on "
          "the processors that the rank may use; ignore_mask, on all of them; off.",
          false),
      words(Type::kText, "host", "", "Pretend that this rank runs on a host of this name.", false),
  };
}

}  // namespace

std::span<const Key> core_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all = make_keys();
    for (const std::vector<Key>& part : {make_network_keys(), make_machine_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return keys;
}

Key plugin_key(std::string_view kind, std::string_view plugin, const tutti_config_key& key) {
  Key out;
  out.name = fmt::format("settings.{}.{}.{}", kind, plugin, std::string_view(key.name.data, key.name.size));
  out.type = static_cast<Type>(key.type);
  out.default_text.assign(key.default_text.data, key.default_text.size);
  out.help.assign(key.help.data, key.help.size);
  if (key.minimum <= key.maximum) {
    out.minimum = key.minimum;
    out.maximum = key.maximum;
  } else if (out.type == Type::kSize || out.type == Type::kDuration) {
    out.minimum = 0;
  }
  out.must_agree = kind != "net";
  return out;
}

std::string variable_of(std::string_view name) {
  std::string out = "TUTTI_" + std::string(name);
  for (char& c : out) c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace tutti::config
