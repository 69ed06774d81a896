// SPDX-License-Identifier: Apache-2.0
// Errors in a configuration are reported with their position, the key, and the right form.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "config/suggest.h"
#include "config/value.h"
#include "unit/config_folder.h"

namespace tutti::config {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* file;
  const char* error;  // all of it, or its beginning where it ends in "..."
};

class ConfigError : public ConfigFolder {
 protected:
  static void expect(const Case& test) {
    const std::string wanted = test.error;
    const std::string error = error_of(test.file);
    if (wanted.ends_with("...")) {
      EXPECT_THAT(error, StartsWith(wanted.substr(0, wanted.size() - 3))) << test.file;
    } else {
      EXPECT_EQ(error, wanted) << test.file;
    }
  }
};

TEST_F(ConfigError, UnknownKeys) {
  for (const Case& test : {
           Case{"protokol: ll\n", "job.yaml:1:1: unknown key 'protokol'; did you mean 'protocol'?"},
           Case{"channels: 1\nshm:\n  slot: 4\n", "job.yaml:3:3: unknown key 'shm.slot'; did you mean 'shm.slots'?"},
           Case{"shm: {slots: 4, slot_sise: 1K}\n",
                "job.yaml:1:17: unknown key 'shm.slot_sise'; did you mean 'shm.slot_size'?"},
           Case{"timeouts.bootstap: 1s\n",
                "job.yaml:1:1: unknown key 'timeouts.bootstap'; did you mean 'timeouts.bootstrap'?"},
           Case{"\n\n  peer_loss: 3s\n", "job.yaml:3:3: unknown key 'peer_loss'; did you mean 'timeouts.peer_loss'?"},
           Case{"quux: 1\n", "job.yaml:1:1: unknown key 'quux'; `tutti config show` lists what there is"},
           Case{"shm: 3\n", "job.yaml:1:1: 'shm' is a section, not a setting; its settings are shm.single_copy, ..."},
           Case{"<<: {channels: 1}\n", "job.yaml:1:6: unknown key '<<.channels'..."},
           Case{"shm..slots: 3\n", "job.yaml:1:1: unknown key 'shm..slots'; did you mean 'shm.slots'?"},
           Case{"SHM.slots: 3\n", "job.yaml:1:1: unknown key 'SHM.slots'; did you mean 'shm.slots'?"},
       }) {
    expect(test);
  }
}

TEST_F(ConfigError, DuplicateKeys) {
  for (const Case& test : {
           Case{"protocol: ll\nchannels: 1\nprotocol: ll\n",
                "job.yaml:3:1: 'protocol' stands twice; first at job.yaml:1:1"},
           Case{"shm: {slots: 4, slots: 4}\n", "job.yaml:1:17: 'slots' stands twice; first at job.yaml:1:7"},
           Case{"shm:\n  slots: 4\nshm:\n  slot_size: 4K\n", "job.yaml:3:1: 'shm' stands twice; first at job.yaml:1:1"},
           Case{"shm:\n  slots: 4\nshm.slots: 5\n", "job.yaml:3:1: 'shm.slots' stands twice; first at job.yaml:2:3"},
           Case{"rules: []\nrules: []\n", "job.yaml:2:1: 'rules' stands twice; first at job.yaml:1:1"},
       }) {
    expect(test);
  }
}

TEST_F(ConfigError, Values) {
  for (const Case& test : {
           Case{"network: []\n", "job.yaml:1:10: network: must not be empty"},
           Case{"transport: tcp\n", "job.yaml:1:12: transport: 'tcp' is not one of: auto, shm, net"},
           Case{"log:\n  level: loud\n",
                "job.yaml:2:10: log.level: 'loud' is not one of: off, error, warn, info, debug, trace"},
           Case{"check.plans: yes\n", "job.yaml:1:14: check.plans: 'yes' is not one of: true, false"},
           Case{"check.plans: True\n", "job.yaml:1:14: check.plans: 'True' is not one of: true, false"},
           Case{"algorithm: \"\"\n", "job.yaml:1:12: algorithm: must not be empty"},
           Case{"algorithm: \"a\\nb\"\n", "job.yaml:1:12: algorithm: a text must be one line of printable characters"},
           Case{"channels: 65\n", "job.yaml:1:11: channels: 65 is out of range; allowed is 0 to 64"},
           Case{"channels: -1\n", "job.yaml:1:11: channels: -1 is out of range; allowed is 0 to 64"},
           Case{"channels: 99999999999999999999\n",
                "job.yaml:1:11: channels: 99999999999999999999 is out of range; allowed is 0 to 64"},
           Case{"shm.slot_size: 2G\n", "job.yaml:1:16: shm.slot_size: 2G is out of range; allowed is 64B to 1GiB"},
           Case{"shm.slot_size: 9223372036854775807G\n",
                "job.yaml:1:16: shm.slot_size: 9223372036854775807G is out of range; allowed is 64B to 1GiB"},
           Case{"timeouts.bootstrap: 0s\n",
                "job.yaml:1:21: timeouts.bootstrap: 0s is out of range; allowed is 1ms to 24h"},
       }) {
    expect(test);
  }
  for (const char* number :
       {"010", "0x10", "1e3", "1.0", "+1", "1_0", "eight", "''", "00", "1 2", "1K", ".inf", "--1", "true"}) {
    EXPECT_THAT(error_of(std::string("channels: ") + number + "\n"),
                AllOf(StartsWith("job.yaml:1:11: channels: '"), EndsWith("is not a decimal integer")))
        << number;
  }
  for (const char* size : {"64k", "64KB", "1.5K", "010K", "K", "1TiB", "1K2", "--1"}) {
    EXPECT_THAT(
        error_of(std::string("shm.slot_size: ") + size + "\n"),
        AllOf(StartsWith("job.yaml:1:16: shm.slot_size: "), EndsWith("is not a size such as 4096, 64KiB or 1M")))
        << size;
  }
  // 2^64 + 2^30 bytes, 2^64 + 64 KiB and 2^63 bytes: they must not wrap around into the range.
  for (const char* size : {"17179869185G", "18014398509482048K", "8589934592GiB"}) {
    EXPECT_EQ(error_of(std::string("shm.slot_size: ") + size + "\n"),
              fmt::format("job.yaml:1:16: shm.slot_size: {} is out of range; allowed is 64B to 1GiB", size));
  }
  for (const char* duration : {"10", "0", "1.5s", "10S", "s", "1d", "1m30s"}) {
    EXPECT_THAT(error_of(std::string("timeouts.bootstrap: ") + duration + "\n"),
                AllOf(StartsWith("job.yaml:1:21: timeouts.bootstrap: "),
                      EndsWith("is not a duration such as 250ms, 10s or 1m")))
        << duration;
  }
}

TEST_F(ConfigError, EmptyItems) {
  for (const char* text : {"[a,]", "a, ", "[,a]", "a,,b", ","}) EXPECT_FALSE(parse_list(text).ok()) << text;
  EXPECT_TRUE(parse_list("[a, b]").ok());
}

TEST_F(ConfigError, Shapes) {
  for (const Case& test : {
           Case{"algorithm: [ring]\n", "job.yaml:1:12: algorithm: expected a single value, not a list"},
           Case{"plugins:\n  network: socket\n", "job.yaml:2:12: plugins.network: expected a list such as [a, b]"},
           Case{"network: {socket: {}}\n",
                "job.yaml:1:10: network: expected a word or a list of words such as [a, b], not a map"},
           Case{"protocol:\n  name: ll\n", "job.yaml:2:3: protocol: expected a single value, not a map"},
           Case{"net: {racks: {left: a}}\n", "job.yaml:1:14: net.racks: expected a list such as [a, b], not a map"},
           Case{"plugins.network: [socket, [ib]]\n",
                "job.yaml:1:27: an item of a list must be a word without commas and brackets"},
           Case{"plugins.network: [a, '']\n",
                "job.yaml:1:22: an item of a list must be a word without commas and brackets"},
           Case{"plugins.network:\n  - \"a,b\"\n",
                "job.yaml:2:5: an item of a list must be a word without commas and brackets"},
           Case{"protocol:\nchannels: 1\n", "job.yaml:1:1: 'protocol' has no value; give it one, or remove it"},
           Case{"protocol: ~\n", "job.yaml:1:1: 'protocol' has no value; give it one, or remove it"},
           Case{"algorithm: {}\n", "job.yaml:1:1: 'algorithm' has no value; give it one, or remove it"},
           Case{"shm:\n", "job.yaml:1:1: 'shm' has no value; give it one, or remove it"},
           Case{"- a\n", "job.yaml:1:1: the file must be a map of settings, such as 'protocol: ll'"},
           Case{"just words\n", "job.yaml:1:1: the file must be a map of settings, such as 'protocol: ll'"},
           Case{"? [a]\n: b\n", "job.yaml:1:3: a key must be a word"},
           Case{"? {a: b}\n: b\n", "job.yaml:1:3: a key must be a word"},
           Case{"~: b\n", "job.yaml:1:1: a key must be a word"},
           Case{"'': b\n", "job.yaml:1:1: a key must be a word"},
       }) {
    expect(test);
  }
}

const std::string kDeep = "a: " + std::string(70, '[') + "1" + std::string(70, ']') + "\n";

TEST_F(ConfigError, Yaml) {
  for (const Case& test : {
           Case{"protocol: &x ll\n", "job.yaml:1:11: anchors (&) are not used here"},
           Case{"shm: &x {slots: 4}\n", "job.yaml:1:6: anchors (&) are not used here"},
           Case{"channels: !!int 3\n", "job.yaml:1:11: tags (!) are not used here"},
           Case{"plugins.network: !x [socket]\n", "job.yaml:1:18: tags (!) are not used here"},
           Case{"protocol: *x\n", "job.yaml:1:11: ..."},
           Case{"channels: 1\n---\nchannels: 2\n", "job.yaml:2:1: a second YAML document; keep one"},
           Case{"channels: [1\n", "job.yaml:2:..."},
           Case{"channels: 1\n protocol: ll\n", "job.yaml:2:..."},
           Case{"shm: {slots: 4\n", "job.yaml:2:..."},
           Case{"algorithm: \"ring\n", "job.yaml:..."},
           Case{"algorithm: 'ring\nchannels: 1\n\n", "job.yaml:..."},
           Case{"channels: - 1\n", "job.yaml:1:11: ..."},
           Case{kDeep.c_str(), "job.yaml:1:67: nested too deeply"},
       }) {
    expect(test);
  }
  EXPECT_EQ(error_of("#" + std::string(1 << 20, 'x')), "job.yaml: larger than 1 MiB; is it a configuration?");
}

TEST_F(ConfigError, Rules) {
  const auto rule = [](const std::string& text) { return "rules:\n  - " + text + "\n"; };
  EXPECT_EQ(error_of("rules: {}\n"),
            "job.yaml:1:8: rules must be a list: '- match: {...}' and 'choose: {...}' or 'forbid: {...}'");
  EXPECT_EQ(error_of(rule("ring")), "job.yaml:2:5: a rule must be a map with: match, choose, forbid");
  EXPECT_EQ(error_of(rule("{match: {ranks: 2}}")), "job.yaml:2:5: a rule needs 'choose' or 'forbid'");
  EXPECT_EQ(error_of(rule("{choose: {protocol: ll}, forbid: {protocol: ll}}")),
            "job.yaml:2:30: a rule either chooses or forbids; make it two");
  EXPECT_EQ(error_of(rule("{choos: {protocol: ll}}")),
            "job.yaml:2:6: unknown key 'choos' in a rule; did you mean 'choose'?; allowed: match, choose, forbid");
  EXPECT_EQ(error_of(rule("{choose: {}}")), "job.yaml:2:14: name an algorithm, protocol, network or channels");
  EXPECT_EQ(error_of(rule("{choose: {protocol: ''}}")), "job.yaml:2:25: protocol: must not be empty");
  EXPECT_EQ(error_of(rule("{choose: {protocol: [ll]}}")), "job.yaml:2:25: protocol: expected a single value");
  EXPECT_EQ(error_of(rule("{choose: {channels: 65}}")),
            "job.yaml:2:25: channels: 65 is out of range; allowed is 1 to 64");
  EXPECT_EQ(error_of(rule("{forbid: {channels: 2}}")), "job.yaml:2:14: channels can be chosen, not forbidden");
  EXPECT_EQ(error_of(rule("{choose: {protcol: ll}}")),
            "job.yaml:2:15: unknown key 'protcol' in 'choose' of a rule; did you mean 'protocol'?; allowed: algorithm, "
            "protocol, network, channels");
  const auto match = [&](const std::string& text) { return rule("{match: {" + text + "}, choose: {protocol: ll}}"); };
  EXPECT_THAT(error_of(match("collective: all_reduse")),
              StartsWith("job.yaml:2:26: collective: 'all_reduse' is not one of: all_reduce, reduce_scatter, "));
  EXPECT_THAT(error_of(match("data_type: float")), HasSubstr("data_type: 'float' is not one of: int8, "));
  EXPECT_EQ(error_of(match("link: p2p")), "job.yaml:2:20: link: 'p2p' is not one of: shm, net");
  EXPECT_EQ(error_of(match("ranks: 0")), "job.yaml:2:21: ranks: 0 is out of range; allowed is 1 to 2147483647");
  EXPECT_EQ(error_of(match("min_size: -1")), "job.yaml:2:24: min_size: -1 is out of range; allowed is at least 0");
  EXPECT_EQ(error_of(match("max_size: 1.5M")),
            "job.yaml:2:24: max_size: '1.5M' is not a size such as 4096, 64KiB or 1M");
  EXPECT_EQ(error_of(match("max_size: 1K, min_size: 2K")),
            "job.yaml:2:13: min_size is larger than max_size: nothing can match");
  EXPECT_EQ(error_of(match("ranks: 2, ranks: 2")), "job.yaml:2:24: 'ranks' stands twice; first at job.yaml:2:14");
}

TEST_F(ConfigError, Files) {
  const auto job = [](const std::string& file) { return Config::load({"", file, {}, {}}); };
  const auto missing = job("none.yaml");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_EQ(missing.status().text(),
            "cannot read the configuration file none.yaml: No such file or directory; check the path");
  std::filesystem::create_directory("folder");
  EXPECT_EQ(job("folder").status().text(),
            "cannot read the configuration file folder: Is a directory; choose another file");
  EXPECT_EQ(job("/dev/zero").status().text(), "/dev/zero: larger than 1 MiB; is it a configuration?");
  EXPECT_EQ(Config::load({"site.yaml", "", {{"TUTTI_CONFIG", "none.yaml"}}, {}}).status().code(), Code::kNotFound);
  // The usual site file may be absent; a named site file may not.
  EXPECT_TRUE(Config::load({"site.yaml", "", {}, {}}).ok());
}

TEST_F(ConfigError, FilesThatCannotBeReadHaveAnOrigin) {
  const std::string text = "cannot read the configuration file none.yaml: No such file or directory; check the path";
  for (const char* variable : {"TUTTI_SITE_CONFIG", "TUTTI_CONFIG"}) {
    const Status status = Config::load({"site.yaml", "", {{variable, "none.yaml"}}, {}}).status();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_EQ(status.text(), std::string(variable) + ": " + text);
  }
  LoadOptions options{"", "none.yaml", {{"TUTTI_CONFIG", "other.yaml"}}, {}};
  options.job_file_origin = "--config";
  EXPECT_EQ(Config::load(options).status().text(), "--config: " + text);
  write("none.yaml", "quux: 1\n");
  EXPECT_THAT(std::string(Config::load(options).status().text()), StartsWith("none.yaml:1:1: "));
}

TEST_F(ConfigError, OutsideFiles) {
  EXPECT_EQ(error_of("", {{"TUTTI_SHM_SLOTS", "99"}}),
            "environment TUTTI_SHM_SLOTS: shm.slots: 99 is out of range; allowed is 2 to 64");
  EXPECT_EQ(error_of("", {{"TUTTI_SHM_SLOT", "4"}}),
            "environment: unknown variable TUTTI_SHM_SLOT; did you mean 'TUTTI_SHM_SLOTS'?");
  EXPECT_EQ(error_of("", {{"TUTTI_CONFG", "x"}}),
            "environment: unknown variable TUTTI_CONFG; did you mean 'TUTTI_CONFIG'?");
  EXPECT_EQ(error_of("", {{"TUTTI_QUUX_FROB", "x"}}),
            "environment: unknown variable TUTTI_QUUX_FROB; `tutti config show` lists what there is");
  EXPECT_EQ(error_of("", {{"TUTTI_SET", "channels=3;protocol"}}), "environment TUTTI_SET: 'protocol' is not key=value");
  EXPECT_EQ(error_of("", {{"TUTTI_SET", "chanels=3"}}),
            "environment TUTTI_SET: unknown key 'chanels'; did you mean 'channels'?");
  EXPECT_EQ(error_of("", {}, {{"log.level", "loud"}}),
            "application: log.level: 'loud' is not one of: off, error, warn, info, debug, trace");
  EXPECT_EQ(error_of("", {}, {{"log.levle", "info"}}),
            "application: unknown key 'log.levle'; did you mean 'log.level'?");
  EXPECT_EQ(error_of("", {}, {{"plugins.network", "a,,b"}}), "application: plugins.network: a list has an empty item");
}

TEST_F(ConfigError, RulesOutsideFiles) {
  const std::string text =
      "rules can stand only in a file, as a list under the key 'rules'; --config or TUTTI_CONFIG names the file";
  EXPECT_EQ(error_of("", {{"TUTTI_RULES", "[]"}}), "environment TUTTI_RULES: " + text);
  EXPECT_EQ(error_of("", {{"TUTTI_RULES_CHOOSE", "ll"}}), "environment TUTTI_RULES_CHOOSE: " + text);
  EXPECT_EQ(error_of("", {{"TUTTI_SET", "rules=[]"}}), "environment TUTTI_SET: 'rules': " + text);
  EXPECT_EQ(error_of("", {}, {{"rules", "[]"}}), "application: 'rules': " + text);
  EXPECT_EQ(error_of("rules.choose: {protocol: ll}\n"), "job.yaml:1:16: 'rules.choose.protocol': " + text);
  EXPECT_THAT(error_of("rulez: []\n"), StartsWith("job.yaml:1:1: unknown key 'rulez'"));
  EXPECT_THAT(error_of("", {{"TUTTI_RULEZ", ""}}), StartsWith("environment: unknown variable TUTTI_RULEZ"));
}

TEST_F(ConfigError, SettingsOfPlugins) {
  EXPECT_EQ(
      error_of("settings:\n  nett:\n    socket:\n      streams: 2\n"),
      "job.yaml:4:7: 'settings.nett.socket.streams': 'nett' is no kind of plugin; did you mean 'net'?; there are: "
      "algo, proto, net, tuner");
  EXPECT_EQ(error_of("settings.net.socket: 2\n"),
            "job.yaml:1:1: 'settings.net.socket' is not of the form settings.<kind>.<plugin>.<name>");
  const std::vector<Key> keys = {{"settings.net.socket.streams", Type::kInteger, "2", "", {}, 1, 16}};
  const auto add = [&](Result<Config> config) {
    EXPECT_TRUE(config.ok()) << config.status().text();
    return std::string(config->add("net", "socket", keys).text());
  };
  EXPECT_EQ(add(load("settings.net.socket.stream: 2\n")),
            "job.yaml:1:1: net plugin 'socket' has no setting 'settings.net.socket.stream'; did you mean "
            "'settings.net.socket.streams'?; allowed: streams");
  EXPECT_EQ(add(load("settings:\n  net.socket.streams: 17\n")),
            "job.yaml:2:23: settings.net.socket.streams: 17 is out of range; allowed is 1 to 16");
  EXPECT_EQ(add(load("settings.net.socket.streams: [2]\n")),
            "job.yaml:1:30: settings.net.socket.streams: expected a single value, not a list");
  EXPECT_EQ(add(load("", {{"TUTTI_SETTINGS_NET_SOCKET_STREMS", "2"}})),
            "environment TUTTI_SETTINGS_NET_SOCKET_STREMS: net plugin 'socket' has no setting "
            "'TUTTI_SETTINGS_NET_SOCKET_STREMS'; did you mean 'TUTTI_SETTINGS_NET_SOCKET_STREAMS'?; allowed: STREAMS");
  EXPECT_EQ(add(load("", {{"TUTTI_SETTINGS_NET_SOCKET_STREAMS", "x"}})),
            "environment TUTTI_SETTINGS_NET_SOCKET_STREAMS: settings.net.socket.streams: 'x' is not a decimal integer");
}

TEST(Suggest, FindsWhatIsNear) {
  const std::vector<std::string> known = {"ring", "direct", "shm.slots", "net.slots"};
  EXPECT_EQ(nearest("rnig", known), "ring");
  EXPECT_EQ(nearest("drect", known), "direct");
  EXPECT_EQ(nearest("slots", known), "shm.slots");
  EXPECT_EQ(nearest("banana", known), "");
  EXPECT_EQ(nearest("mine", known), "") << "two edits make 'ring' of it";
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(100000, 'r'), known), "");
  EXPECT_EQ(did_you_mean("rings", known), "; did you mean 'ring'?");
  EXPECT_EQ(did_you_mean("banana", known), "");
}

}  // namespace
}  // namespace tutti::config
