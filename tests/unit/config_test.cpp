// SPDX-License-Identifier: Apache-2.0
// The meaning of a right configuration: values, layers and their origins, rules, settings of plugins, agreement.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "log/log.h"
#include "unit/config_folder.h"

namespace tutti::config {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ConfigTest : public ConfigFolder {
 protected:
  static Config loaded(const std::string& job, const Pairs& environment = {}, const Pairs& settings = {}) {
    auto config = load(job, environment, settings);
    EXPECT_TRUE(config.ok()) << config.status().to_string() << "\n" << job;
    return config.ok() ? *std::move(config) : *load("");
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file);
    EXPECT_TRUE(in) << file;
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

const std::string kConfigs = TUTTI_SOURCE_DIR "/configs/";

TEST_F(ConfigTest, NothingGivenMeansBuiltIn) {
  for (const char* file : {"", "# only a comment\n", "---\n", "{}\n", "---\n# x\n...\n"}) {
    const Config config = loaded(file);
    EXPECT_EQ(config.text("algorithm"), "auto");
    EXPECT_EQ(config.integer("channels"), 0);
    EXPECT_EQ(config.size_bytes("shm.slot_size"), 128u << 10);
    EXPECT_EQ(config.duration("timeouts.bootstrap"), 30s);
    EXPECT_TRUE(config.boolean("check.plans"));
    EXPECT_THAT(config.list("plugins.algorithm"), ElementsAre("ring", "tree", "direct", "hier"));
    EXPECT_THAT(config.rules(), IsEmpty());
    for (const auto& item : config.items()) EXPECT_EQ(item.origin, "built-in") << item.key;
  }
}

TEST_F(ConfigTest, EveryKeyHasAnUnambiguousVariableAndHelp) {
  std::set<std::string> variables;
  for (const Key& key : core_keys()) {
    EXPECT_TRUE(variables.insert(variable_of(key.name)).second) << key.name;
    EXPECT_THAT(key.help, testing::EndsWith(".")) << key.name;
    EXPECT_EQ(key.type == Type::kChoice, !key.allowed.empty()) << key.name;
  }
  EXPECT_EQ(variable_of("shm.slot_size"), "TUTTI_SHM_SLOT_SIZE");
  EXPECT_FALSE(variables.contains("TUTTI_SET") || variables.contains("TUTTI_CONFIG"));
}

TEST_F(ConfigTest, ValuesAreRead) {
  const Config config = loaded(
      "algorithm: direct/two-shot\n"
      "channels: 64\n"
      "check: {plans: false, calls: true}\n"
      "shm:\n"
      "  slots: \"16\"\n"
      "  slot_size: 1M\n"
      "  single_copy: off\n"
      "  single_copy_min: 65536\n"
      "net.slot_size: 3 KiB\n"
      "timeouts: {bootstrap: 1h, peer_loss: 250ms, operation: 90s}\n"
      "plugins.path: [/a, 'b c', \"d\"]\n"
      "bootstrap:\n"
      "  interface:\n"
      "    - eth\n"
      "    - ^docker\n"
      "log.file: '/tmp/%h: x.log'\n");
  EXPECT_EQ(config.text("algorithm"), "direct/two-shot");
  EXPECT_EQ(config.integer("channels"), 64);
  EXPECT_FALSE(config.boolean("check.plans"));
  EXPECT_EQ(config.integer("shm.slots"), 16);
  EXPECT_EQ(config.size_bytes("shm.slot_size"), 1u << 20);
  EXPECT_EQ(config.text("shm.single_copy"), "off");
  EXPECT_EQ(config.size_bytes("shm.single_copy_min"), 65536u);
  EXPECT_EQ(config.size_bytes("net.slot_size"), 3072u);
  EXPECT_EQ(config.duration("timeouts.bootstrap"), 1h);
  EXPECT_EQ(config.duration("timeouts.peer_loss"), 250ms);
  EXPECT_EQ(config.duration("timeouts.operation"), 90s);
  EXPECT_THAT(config.list("plugins.path"), ElementsAre("/a", "b c", "d"));
  EXPECT_THAT(config.list("bootstrap.interface"), ElementsAre("eth", "^docker"));
  EXPECT_EQ(config.text("log.file"), "/tmp/%h: x.log");
}

TEST_F(ConfigTest, AnUndeclaredKeyIsReportedAsABug) {
  const Config config = loaded("");
  testing::internal::CaptureStderr();
  EXPECT_EQ(config.integer("chanels"), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("nobody declared the configuration key 'chanels'"));
  EXPECT_EQ(config.origin("chanels"), "undeclared");
}

TEST_F(ConfigTest, LaterLayersWin) {
  const Pairs none;
  const Pairs variable = {{"TUTTI_CHANNELS", "3"}};
  const Pairs variables = {{"TUTTI_CHANNELS", "3"}, {"TUTTI_SET", "channels=4;;protocol=ll;"}};
  const Pairs application = {{"channels", "5"}};
  const auto expect = [](const Config& config, int64_t value, const std::string& origin) {
    EXPECT_EQ(config.integer("channels"), value);
    EXPECT_EQ(config.origin("channels"), origin);
  };
  expect(loaded(""), 0, "built-in");
  write("site.yaml", "# ours\nchannels: 1\n");
  expect(loaded(""), 1, "site site.yaml:2:1");
  expect(loaded("{protocol: simple, channels: 2}"), 2, "job job.yaml:1:20");
  expect(loaded("channels: 2", variable), 3, "environment TUTTI_CHANNELS");
  expect(loaded("channels: 2", variables), 4, "environment TUTTI_SET");
  expect(loaded("channels: 2", variables, application), 5, "application");
  // A layer that says nothing about a key leaves it alone.
  const Config config = loaded("protocol: simple", variables);
  EXPECT_EQ(config.text("protocol"), "ll");
  EXPECT_EQ(config.origin("algorithm"), "built-in");
}

TEST_F(ConfigTest, ASettingKeepsTheValuesThatItOverrides) {
  write("site.yaml", "channels: 1\nnet.slots: 9\n");
  const Config config = loaded("channels: 2", {{"TUTTI_CHANNELS", "3"}}, {{"channels", "5"}});
  for (const auto& item : config.items()) {
    std::vector<std::string> overrides;
    for (const auto& earlier : item.overrides) overrides.push_back(earlier.value + " from " + earlier.origin);
    if (item.key == "channels") {
      EXPECT_THAT(overrides, ElementsAre("3 from environment TUTTI_CHANNELS", "2 from job job.yaml:1:1",
                                         "1 from site site.yaml:1:1", "0 from built-in"));
    } else if (item.key == "net.slots") {
      EXPECT_THAT(overrides, ElementsAre("8 from built-in"));
    } else {
      EXPECT_THAT(overrides, IsEmpty()) << item.key;
    }
  }
}

TEST_F(ConfigTest, ValuesHavePlaces) {
  const Config config =
      loaded("channels: 2\nplugins.network:\n  - socket\n  - ib\n", {}, {{"plugins.protocol", "ll, simple"}});
  EXPECT_EQ(config.place("algorithm"), "built-in");
  EXPECT_EQ(config.place("channels"), "job.yaml:1:11");
  EXPECT_EQ(config.item_place("plugins.network", 1), "job.yaml:4:5");
  EXPECT_EQ(config.item_place("plugins.protocol", 1), "application");
  LoadOptions options;
  options.settings = {{"channels", "3"}};
  options.settings_origin = "command line";
  EXPECT_EQ(Config::load(options)->origin("channels"), "command line");
}

TEST_F(ConfigTest, VariablesNameTheFiles) {
  write("a.yaml", "channels: 7\n");
  write("b.yaml", "shm.slots: 9\n");
  const Pairs environment = {{"TUTTI_CONFIG", "a.yaml"}, {"TUTTI_SITE_CONFIG", "b.yaml"}};
  const auto config = Config::load({"site.yaml", "", environment, {}});
  ASSERT_TRUE(config.ok()) << config.status().text();
  EXPECT_EQ(config->origin("channels"), "job a.yaml:1:1");
  EXPECT_EQ(config->origin("shm.slots"), "site b.yaml:1:1");
  // The application's file wins over TUTTI_CONFIG.
  write("job.yaml", "channels: 8\n");
  EXPECT_EQ(Config::load({"", "job.yaml", environment, {}})->integer("channels"), 8);
}

TEST_F(ConfigTest, ListsMayBeWrittenWithoutBracketsOutsideYaml) {
  for (const char* text : {"socket,ib", "[socket, ib]", " socket , ib "}) {
    EXPECT_THAT(loaded("", {{"TUTTI_PLUGINS_NETWORK", text}}).list("plugins.network"), ElementsAre("socket", "ib"));
  }
  EXPECT_THAT(loaded("", {{"TUTTI_PLUGINS_NETWORK", ""}}).list("plugins.network"), IsEmpty());
}

TEST_F(ConfigTest, OtherVariablesAreLeftAlone) {
  loaded("", {{"TUTTI_ID", "x"},
              {"TUTTI_RANK", "0"},
              {"TUTTI_RANKS", "1"},
              {"TUTTI_PLUGIN_PATH", "/x"},
              {"TUTTI_UNLOAD", "1"},
              {"TUTTI_NET", "socket"},
              {"TUTTI_NET_RECEIVES", "8"},
              {"TUTTI_SSH", "ssh -p 2222"},
              {"TUTTI_CONFIG", ""},
              {"TUTTI_TEST_SEED", "7"}});
  EXPECT_EQ(loaded("", {{"TUTTI_HOST", "left"}}).text("host"), "left");
}

TEST_F(ConfigTest, TheProcessEnvironmentIsOurVariables) {
  ASSERT_EQ(setenv("TUTTI_TEST_CONFIG", "a=b", 1), 0);
  ASSERT_EQ(setenv("NOT_TUTTI_TEST", "x", 1), 0);
  const auto environment = process_environment();
  EXPECT_THAT(environment, Contains(std::make_pair(std::string("TUTTI_TEST_CONFIG"), std::string("a=b"))));
  for (const auto& [name, value] : environment) EXPECT_TRUE(name.starts_with("TUTTI_")) << name;
  unsetenv("TUTTI_TEST_CONFIG");
  unsetenv("NOT_TUTTI_TEST");
}

TEST_F(ConfigTest, RulesAreRead) {
  write("site.yaml", "rules:\n- choose: {network: socket}\n");
  const Config config = loaded(
      "rules:\n"
      "  - match: {collective: all_reduce, data_type: bfloat16, min_size: 1K, max_size: 64KiB, ranks: 8, nodes: 2, "
      "link: net, device: cuda}\n"
      "    choose: {algorithm: direct/two-shot, protocol: ll, network: socket, channels: 4}\n"
      "  - forbid: {protocol: ll}\n");
  EXPECT_EQ(loaded("rules: [{match: {min_size: 4K, max_size: 4K}, choose: {protocol: ll}}]").rules()[0].max_size, 4096u)
      << "one size is a range";
  ASSERT_EQ(config.rules().size(), 3u);
  const Rule& first = config.rules()[0];
  EXPECT_EQ(first.collective, Collective::kAllReduce);
  EXPECT_EQ(first.data_type, DataType::kBfloat16);
  EXPECT_EQ(first.min_size, 1024u);
  EXPECT_EQ(first.max_size, 65536u);
  EXPECT_EQ(first.ranks, 8u);
  EXPECT_EQ(first.nodes, 2u);
  EXPECT_EQ(first.link, "net");
  EXPECT_EQ(first.device, "cuda");
  EXPECT_FALSE(first.forbids);
  EXPECT_EQ(first.algorithm, "direct/two-shot");
  EXPECT_EQ(first.protocol, "ll");
  EXPECT_EQ(first.network, "socket");
  EXPECT_EQ(first.channels, 4u);
  EXPECT_EQ(first.place, "job.yaml:2:5");
  EXPECT_EQ(to_string(first),
            "match {collective: all_reduce, data_type: bfloat16, min_size: 1KiB, max_size: 64KiB, ranks: 8, nodes: 2, "
            "link: net, device: cuda} choose {algorithm: direct/two-shot, protocol: ll, network: socket, channels: 4}");
  const Rule& second = config.rules()[1];
  EXPECT_FALSE(second.collective || second.data_type || second.ranks || second.nodes || second.channels);
  EXPECT_TRUE(second.forbids);
  EXPECT_EQ(second.place, "job.yaml:4:5");
  EXPECT_EQ(to_string(second), "match {} forbid {protocol: ll}");
  EXPECT_EQ(config.rules()[2].place, "site.yaml:2:3") << "rules of the job come before those of the site";
}

std::vector<Key> socket_keys() {
  return {{"settings.net.socket.streams", Type::kInteger, "2", "", {}, 1, 16, false},
          {"settings.net.socket.interface", Type::kList, "[]", "", {}, INT64_MIN, INT64_MAX, false}};
}

TEST_F(ConfigTest, RulesExcludeNetworks) {
  const auto excludes = [](const std::string& rule, const char* network) {
    return excludes_network(loaded("rules: [{" + rule + "}]").rules()[0], network);
  };
  EXPECT_TRUE(excludes("forbid: {network: socket}", "socket"));
  EXPECT_FALSE(excludes("forbid: {network: socket}", "ib"));
  EXPECT_FALSE(excludes("forbid: {network: socket, protocol: ll}", "socket"));
  EXPECT_FALSE(excludes("forbid: {network: socket, algorithm: ring}", "socket"));
  EXPECT_TRUE(excludes("choose: {network: ib}", "socket"));
  EXPECT_FALSE(excludes("choose: {network: socket}", "socket"));
  EXPECT_FALSE(excludes("choose: {protocol: ll}", "socket"));
}

TEST_F(ConfigTest, NetworksAreANameOrAList) {
  const auto networks = [](const std::string& job) { return loaded(job).list("network"); };
  const auto text = [](const std::string& job) {
    for (const Config::Item& item : loaded(job).items()) {
      if (item.key == "network") return item.value;
    }
    return std::string();
  };
  EXPECT_EQ(networks(""), std::vector<std::string>{"auto"});
  EXPECT_EQ(networks("network: ib\n"), std::vector<std::string>{"ib"});
  EXPECT_EQ(text("network: ib\n"), "ib");
  EXPECT_EQ(text("network: [ib]\n"), "ib") << "equal values have equal texts";
  EXPECT_EQ(networks("network: [ib, socket]\n"), (std::vector<std::string>{"ib", "socket"}));
  EXPECT_EQ(text("network: [ib, socket]\n"), "[ib, socket]");
}

TEST_F(ConfigTest, SettingsOfPluginsWaitForThem) {
  write("site.yaml", "settings.net.socket: {streams: 3, interface: [eth]}\n");
  Config config = loaded("settings: {net: {socket: {streams: 4}, ib: {device: mlx5_0}}}\n",
                         {{"TUTTI_SETTINGS_NET_SOCKET_STREAMS", "5"}, {"TUTTI_SETTINGS_NET_IB_PORT", "1"}});
  EXPECT_EQ(config.unused().size(), 6u);
  ASSERT_TRUE(config.add("net", "socket", socket_keys()).ok());
  EXPECT_EQ(config.integer("settings.net.socket.streams"), 5);
  EXPECT_EQ(config.origin("settings.net.socket.streams"), "environment TUTTI_SETTINGS_NET_SOCKET_STREAMS");
  EXPECT_THAT(config.list("settings.net.socket.interface"), ElementsAre("eth"));
  EXPECT_EQ(config.origin("settings.net.socket.interface"), "site site.yaml:1:35");
  EXPECT_THAT(config.unused(), ElementsAre("job.yaml:1:45: settings.net.ib.device",
                                           "environment TUTTI_SETTINGS_NET_IB_PORT: TUTTI_SETTINGS_NET_IB_PORT"));
}

TEST_F(ConfigTest, TheApplicationSetsPluginsTooAndAddingTwiceIsTheSame) {
  Config config = loaded("settings.net.socket.streams: 4\n", {}, {{"settings.net.socket.streams", "6"}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(config.add("net", "socket", socket_keys()).ok());
    EXPECT_EQ(config.integer("settings.net.socket.streams"), 6);
    EXPECT_EQ(config.origin("settings.net.socket.streams"), "application");
  }
}

TEST_F(ConfigTest, ABadDefaultOfAPluginIsItsError) {
  Config config = loaded("");
  const Status status = config.add("net", "x", {{"settings.net.x.y", Type::kInteger, "many", "", {}, 1, 16}});
  EXPECT_EQ(status.text(), "default of 'settings.net.x.y': 'many' is not a decimal integer");
}

TEST_F(ConfigTest, PluginKeysAgreeButForNetworks) {
  tutti_config_key key{};
  key.type = TUTTI_CONFIG_SIZE;
  key.name = {"min", 3};
  key.default_text = {"4K", 2};
  key.help = {"x", 1};
  key.minimum = 1;
  key.maximum = 0;
  const Key algorithm = plugin_key("algo", "ring", key);
  EXPECT_EQ(algorithm.name, "settings.algo.ring.min");
  EXPECT_EQ(algorithm.default_text, "4K");
  EXPECT_EQ(algorithm.maximum, INT64_MAX) << "minimum > maximum means no range";
  EXPECT_EQ(parse(algorithm, "-5").status().text(), "-5 is out of range; allowed is at least 0");
  EXPECT_TRUE(parse(algorithm, "0").ok());
  key.type = TUTTI_CONFIG_DURATION;
  EXPECT_EQ(parse(plugin_key("net", "socket", key), "-5s").status().text(),
            "-5s is out of range; allowed is at least 0s");
  key.type = TUTTI_CONFIG_INTEGER;
  EXPECT_TRUE(parse(plugin_key("net", "socket", key), "-5").ok());
  EXPECT_TRUE(algorithm.must_agree);
  EXPECT_FALSE(plugin_key("net", "socket", key).must_agree);
}

TEST_F(ConfigTest, RanksAgreeOnMeaningNotOnSpelling) {
  const Config a = loaded("shm: {slot_size: 256KiB, slots: 8}\ntimeouts.bootstrap: 60s\n");
  write("site.yaml", "timeouts.bootstrap: 1m\n");
  const Config b = loaded("shm.slot_size: 262144\n", {{"TUTTI_LOG_LEVEL", "debug"}, {"TUTTI_HOST", "here"}});
  EXPECT_EQ(a.agreement(), b.agreement());
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_THAT(a.agreement(), Contains("shm.slot_size=256KiB"));
  EXPECT_THAT(a.agreement(), Contains("timeouts.bootstrap=1m"));
  EXPECT_THAT(a.agreement(), Not(Contains(HasSubstr("log.level"))));
}

/// A value of `key` that is not its default.
std::string other_value(const Key& key) {
  switch (key.type) {
    case Type::kBool:
      return key.default_text == "true" ? "false" : "true";
    case Type::kChoice:
      return key.default_text == key.allowed[0] ? key.allowed[1] : key.allowed[0];
    case Type::kDuration:
      return "777ms";
    case Type::kText:
    case Type::kList:
    case Type::kNames:
      return "x";
    default:
      return "64";
  }
}

TEST_F(ConfigTest, TheHashSeesEveryKeyOnWhichRanksMustAgree) {
  const uint64_t built_in = loaded("").hash();
  std::set<uint64_t> hashes = {built_in};
  for (const Key& key : core_keys()) {
    const Config config = loaded("", {}, {{key.name, other_value(key)}});
    EXPECT_EQ(config.hash() != built_in, key.must_agree) << key.name;
    EXPECT_EQ(hashes.insert(config.hash()).second, key.must_agree) << key.name;
  }
  for (const char* rules :
       {"[{choose: {protocol: ll}}]", "[{forbid: {protocol: ll}}]", "[{match: {ranks: 2}, choose: {protocol: ll}}]",
        "[{match: {nodes: 2}, choose: {protocol: ll}}]", "[{match: {min_size: 2}, choose: {protocol: ll}}]",
        "[{match: {max_size: 2}, choose: {protocol: ll}}]", "[{match: {link: shm}, choose: {protocol: ll}}]",
        "[{match: {collective: broadcast}, choose: {protocol: ll}}]",
        "[{match: {data_type: int8}, choose: {protocol: ll}}]", "[{choose: {algorithm: ll}}]",
        "[{choose: {network: ll}}]", "[{choose: {channels: 2}}]", "[{choose: {protocol: ll}}, {choose: {channels: 2}}]",
        "[{choose: {channels: 2}}, {choose: {protocol: ll}}]"}) {
    EXPECT_TRUE(hashes.insert(loaded(std::string("rules: ") + rules).hash()).second) << rules;
  }
  // A place is not a meaning.
  EXPECT_EQ(loaded("rules: [{choose: {protocol: ll}}]").hash(), loaded("\nrules:\n- choose: {protocol: ll}").hash());
}

TEST_F(ConfigTest, WrittenValuesReadBackTheSame) {
  for (const Key& key : core_keys()) {
    for (const std::string& text : {key.default_text, other_value(key)}) {
      const auto value = parse(key, text);
      ASSERT_TRUE(value.ok()) << key.name << ": " << value.status().text();
      const std::string written = format(key, *value);
      const auto again = parse(key, written);
      ASSERT_TRUE(again.ok()) << key.name << ": " << again.status().text();
      EXPECT_EQ(again->integer, value->integer) << key.name;
      EXPECT_EQ(again->text, value->text) << key.name;
      EXPECT_EQ(again->list, value->list) << key.name;
      EXPECT_EQ(format(key, *again), written);
    }
  }
}

TEST_F(ConfigTest, TheDefaultFileNamesEveryKeyWithItsBuiltInValue) {
  const Config built_in = loaded("");
  const Config config = loaded(read(kConfigs + "default.yaml"));
  const auto wanted = built_in.items();
  const auto found = config.items();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].value, wanted[i].value) << found[i].key;
    EXPECT_THAT(found[i].origin, testing::StartsWith("job job.yaml:")) << found[i].key;
  }
  EXPECT_EQ(config.agreement(), built_in.agreement());
  EXPECT_THAT(config.rules(), IsEmpty());
}

TEST_F(ConfigTest, TheDefaultFileMarksWhatMayDifferAndTeachesRules) {
  const std::string text = read(kConfigs + "default.yaml");
  // Its commented examples are right too: uncomment "#   " and load.
  std::string examples;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#   rules:") || line.starts_with("#     ") || line.starts_with("#   settings.")) {
      examples += line.substr(4) + "\n";
    }
  }
  Config config = loaded(examples);
  EXPECT_EQ(config.rules().size(), 4u);
  EXPECT_EQ(config.unused().size(), 1u);
  for (const Key& key : rule_keys()) {
    EXPECT_THAT(text, HasSubstr(key.name.substr(key.name.rfind('.') + 1))) << key.name;
  }
}

TEST_F(ConfigTest, TheExamplesLoad) {
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(kConfigs + "examples")) {
    const auto config = Config::load({"", file.path().string(), {}, {}});
    EXPECT_TRUE(config.ok()) << config.status().text();
    ++files;
  }
  EXPECT_GE(files, 3u);
}

}  // namespace
}  // namespace tutti::config
