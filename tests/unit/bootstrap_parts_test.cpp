// SPDX-License-Identifier: Apache-2.0
// The pieces of the bootstrap: ids, interfaces, lists of ranks, differences, hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <cstdlib>
#include <utility>

#include "bootstrap/agreement.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/host.h"
#include "bootstrap/interface.h"
#include "bootstrap/lineup.h"
#include "bootstrap/rank_list.h"
#include "bootstrap/round.h"

namespace tutti::bootstrap {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string text_of(const Status& status) {
  return std::string(status.text());
}

const std::string kSecret = "00112233445566778899aabbccddeeff";

TEST(UniqueIdTest, TextAndBack) {
  for (const std::string& text : {"10.1.2.3:4000:" + kSecret, "[fd00::1:2]:65535:" + kSecret}) {
    const auto id = UniqueId::from_string(text);
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    EXPECT_EQ(id.value().to_string(), text);
  }
  const auto upper = UniqueId::from_string("10.1.2.3:4000:00112233445566778899AABBCCDDEEFF");
  EXPECT_EQ(upper.value().to_string(), "10.1.2.3:4000:" + kSecret);
}

TEST(UniqueIdTest, RefusesWhatIsNone) {
  const std::vector<std::string> none = {"",
                                         ":",
                                         "::",
                                         "10.1.2.3",
                                         "10.1.2.3:4000",
                                         "10.1.2.3:4000:",
                                         "10.1.2.3::" + kSecret,
                                         "10.1.2.3:70000:" + kSecret,
                                         "10.1.2.3:0:" + kSecret,
                                         "10.1.2.3:-1:" + kSecret,
                                         "10.1.2.3: 1:" + kSecret,
                                         "fd00::1:4000:" + kSecret,
                                         "[fd00::1:4000:" + kSecret,
                                         "[10.1.2.3]:4000:" + kSecret,
                                         "10.1.2.3:4000:" + kSecret + "0",
                                         "10.1.2.3:4000:" + kSecret.substr(1) + "x",
                                         ":4000:" + kSecret};
  for (const std::string& text : none) {
    const auto id = UniqueId::from_string(text);
    EXPECT_EQ(id.status().code(), Code::kInvalidArgument) << text << ": " << id.status().to_string();
  }
  EXPECT_EQ(endpoint_of(UniqueId()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(UniqueId().to_string(), "no unique id");
}

TEST(UniqueIdTest, DrawsANewSecretEachTime) {
  const auto first = UniqueId::create("lo");
  const auto second = UniqueId::create("lo");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
  EXPECT_NE(endpoint_of(*first).value().secret, endpoint_of(*second).value().secret);
  EXPECT_THAT(first.value().to_string(), StartsWith("127.0.0.1:"));
}

TEST(UniqueIdTest, NamesThePortInUse) {
  const auto first = UniqueId::create_at("127.0.0.1:0", kSecret);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const std::string address = endpoint_of(*first).value().address.to_string();
  const auto second = UniqueId::create_at(address);
  EXPECT_EQ(second.status().code(), Code::kSystem);
  EXPECT_THAT(text_of(second.status()), HasSubstr("is in use"));
  EXPECT_EQ(first.value().to_string(), address + ":" + kSecret);
}

base::SocketAddress at(const std::string& address) {
  return base::SocketAddress::parse(address).value();
}

TEST(SocketAddressTest, KnowsTheLoopback) {
  for (const char* text : {"127.0.0.1:7", "127.255.0.9:7", "[::1]:7"}) EXPECT_TRUE(at(text).is_loopback()) << text;
  for (const char* text : {"126.0.0.1:7", "128.0.0.1:7", "10.127.0.1:7", "[::2]:7", "[fd00::1]:7"})
    EXPECT_FALSE(at(text).is_loopback()) << text;
  EXPECT_FALSE(base::SocketAddress().is_loopback());
}

TEST(InterfaceTest, ChoosesByTheList) {
  const std::vector<Interface> found = {{"lo", at("127.0.0.1:0"), true},
                                        {"docker0", at("172.17.0.1:0")},
                                        {"eth0", at("10.0.0.5:0")},
                                        {"eth01", at("192.168.7.5:0")},
                                        {"ib0", at("[fd00::5]:0")}};
  const auto chosen = [&](std::string_view list) {
    const auto choice = choose_interface(found, list);
    return choice.ok() ? choice.value().name : std::string(to_string(choice.status().code()));
  };
  EXPECT_EQ(chosen(""), "eth0");
  EXPECT_EQ(chosen("^eth"), "ib0");
  EXPECT_EQ(chosen("^eth,^ib"), "docker0");
  EXPECT_EQ(chosen("^eth,^ib,^docker"), "lo");
  EXPECT_EQ(chosen("ib,eth"), "ib0");
  EXPECT_EQ(chosen("=eth01"), "eth01");
  EXPECT_EQ(chosen("eth,^=eth0"), "eth01");
  EXPECT_EQ(chosen("192.168.0.0/16"), "eth01");
  EXPECT_EQ(chosen("fd00::/8"), "ib0");
  EXPECT_EQ(chosen("eth,^10.0.0.0/8"), "eth01");
  EXPECT_EQ(chosen("0.0.0.0/0"), "lo");
  EXPECT_EQ(chosen("=eth"), "not found");
  EXPECT_EQ(chosen("10.0.0.0/33"), "configuration error");
  EXPECT_EQ(chosen("ten/8"), "configuration error");
  EXPECT_EQ(chosen("eth,,ib"), "configuration error");
  EXPECT_EQ(chosen("^"), "configuration error");
  EXPECT_THAT(text_of(choose_interface(found, "en").status()), HasSubstr("eth0 (10.0.0.5)"));
}

TEST(InterfaceTest, ThisHostHasALoopback) {
  const auto found = interfaces_of_this_host();
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(choose_interface(*found, "127.0.0.0/8").ok());
  EXPECT_TRUE(choose_interface(*found, "").ok());
}

TEST(InterfaceTest, WithoutADescriptorTheLimitIsNamed) {
  const auto text_without_descriptors = [] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    return text_of(interfaces_of_this_host().status());
  };
  EXPECT_EXIT(std::_Exit(text_without_descriptors() == "cannot list the network interfaces: Too many open files: this "
                                                       "process may have 0 descriptors; raise the limit (ulimit -n)"
                             ? 0
                             : 1),
              testing::ExitedWithCode(0), "");
}

TEST(SocketTest, WatchesForDeadHosts) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  base::set_connection_options(socket, base::Milliseconds(10000));
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(socket.get(), level, name, &value, &size);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 5);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 21000);
}

TEST(RankListTest, JoinsNeighbours) {
  EXPECT_EQ(rank_list(std::vector{3}), "rank 3");
  EXPECT_EQ(rank_list(std::vector{3, 4}), "ranks 3,4");
  EXPECT_EQ(rank_list(std::vector{0, 1, 2, 5, 7, 8, 9}), "ranks 0-2,5,7-9");
}

TEST(WireTest, PacksAndRefusesBrokenPackets) {
  const std::vector<Bytes> entries = {to_bytes("one"), {}, to_bytes("three")};
  const Bytes packed = pack(entries);
  EXPECT_EQ(unpack(packed).value(), entries);
  EXPECT_FALSE(unpack(std::span(packed).first(packed.size() - 1)).ok());
  EXPECT_FALSE(unpack(std::span(packed).first(5)).ok());
  EXPECT_FALSE(unpack(std::span(packed).first(2)).ok());
}

TEST(AgreementTest, TellsWhoHasWhat) {
  const Identity base = {.version = "0.1.0", .plugins = {"algo.ring 0.1.0, ABI 0.1"}, .config = {"protocol=ll"}};
  EXPECT_EQ(difference_of({base, base}), "");
  Identity version = base;
  version.version = "0.2.0";
  EXPECT_EQ(difference_of({base, version, base}), "the version of Tutti is 0.1.0 on ranks 0,2 and 0.2.0 on rank 1");
  Identity abi = base;
  abi.plugins = {"algo.ring 0.1.0, ABI 0.2"};
  EXPECT_EQ(difference_of({base, abi}), "plugin algo.ring is 0.1.0, ABI 0.1 on rank 0 and 0.1.0, ABI 0.2 on rank 1");
  Identity config = base;
  config.config = {"protocol="};
  EXPECT_EQ(difference_of({base, config, {"0.1.0", base.plugins, {}}}),
            "config key 'protocol' is ll on rank 0, empty on rank 1 and missing on rank 2");
  Identity decision = base;
  decision.decisions = {"all_reduce of blocks of 8 bytes=ring × ll ×1"};
  EXPECT_EQ(difference_of({base, decision}),
            "what runs 'all_reduce of blocks of 8 bytes' is missing on rank 0 and ring × ll ×1 on rank 1");
  Identity much = base;
  for (int i = 0; i < 20; ++i) much.config.push_back("key" + std::to_string(i) + "=1");
  EXPECT_THAT(difference_of({base, much}), testing::EndsWith("; and 4 more differences"));
}

Gathered gathered(const std::vector<Bytes>& of_ranks) {
  Bytes bytes;
  for (const Bytes& one : of_ranks) bytes.insert(bytes.end(), one.begin(), one.end());
  std::vector<Gathered::Part> parts;
  size_t begin = 0;
  for (const Bytes& one : of_ranks)
    parts.emplace_back(bytes.data() + std::exchange(begin, begin + one.size()), one.size());
  return {std::move(bytes), std::move(parts)};
}

TEST(HostTest, NumbersNodesByFirstRank) {
  const HostIdentity here = this_host();
  EXPECT_FALSE(here.boot_id.empty());
  EXPECT_NE(here.pid_namespace, 0u);
  const HostIdentity pretended = this_host("other");
  HostIdentity container = here;
  ++container.pid_namespace;
  HostIdentity renamed = here;
  renamed.host_name += "x";
  EXPECT_EQ(node_of_rank(std::vector{pretended, here, container, here, pretended, renamed}),
            (std::vector{0, 1, 2, 1, 0, 1}));
  EXPECT_TRUE(here.same_host(renamed));
  EXPECT_FALSE(here.same_host(pretended));
}

TEST(HostTest, KnowsTheHostOfEachRank) {
  const HostIdentity here = this_host();
  const HostIdentity pretended = this_host("other");
  HostIdentity renamed = here;
  renamed.host_name += "x";
  const std::vector<HostIdentity> identities = {pretended, here, here, renamed, pretended};
  std::vector<Bytes> encoded;
  for (const HostIdentity& identity : identities) encoded.push_back(encode(identity));
  const auto hosts = Hosts::decode(gathered(encoded));
  ASSERT_TRUE(hosts.ok());
  const std::vector<uint32_t> nodes = {0, 1, 1, 1, 0};
  for (uint32_t rank = 0; rank < identities.size(); ++rank) {
    EXPECT_EQ(hosts->of(rank).host_name, identities[rank].host_name);
    EXPECT_TRUE(hosts->of(rank).same_host(identities[rank]));
    EXPECT_EQ(hosts->node_of(rank), nodes[rank]);
  }
  encoded.push_back(to_bytes("nonsense"));
  EXPECT_FALSE(Hosts::decode(gathered(encoded)).ok());
}

TEST(HostTest, EncodesAndDecodes) {
  const HostIdentity host = {.boot_id = "b",
                             .pid_namespace = ~uint64_t{0},
                             .pretended_name = "|p",
                             .host_name = std::string("h\0", 2),
                             .processors = "000000ff,00000001"};
  const auto decoded = decode_host(encode(host));
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded.value().same_host(host));
  EXPECT_EQ(decoded.value().host_name, host.host_name);
  EXPECT_EQ(decoded.value().processors, host.processors);
  EXPECT_FALSE(decode_host(to_bytes("nonsense")).ok());
}

Frame call_of(Operation operation, int root, const std::string& payload = "") {
  Frame call;
  call.header.code = static_cast<uint16_t>(operation);
  call.header.rank = root;
  call.payload = to_bytes(payload);
  return call;
}

TEST(RoundTest, RanksMustNameOneRoot) {
  Round round(3);
  EXPECT_TRUE(round.add(0, call_of(Operation::kBroadcast, 1)).ok());
  EXPECT_TRUE(round.add(1, call_of(Operation::kBroadcast, 1, "word")).ok());
  const Status status = round.add(2, call_of(Operation::kBroadcast, 2));
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(text_of(status),
            "ranks disagree on a bootstrap call: broadcast from rank 1 on ranks 0,1, broadcast from rank 2 on rank 2");
}

TEST(SurveyTest, TheFirstAnswerOfARankCounts) {
  Survey survey({0, 1}, to_bytes("why"), 2);
  const auto answer = [](const char* text) { return Answer{Answer::State::kAnswered, to_bytes(text)}; };
  survey.answer(1, answer("first"));
  const Bytes before = survey.result();
  survey.answer(1, answer("second"));
  EXPECT_EQ(survey.result(), before);
  EXPECT_FALSE(survey.complete()) << "rank 0 has not answered";
  survey.answer(0, answer("own"));
  EXPECT_TRUE(survey.complete());
}

TEST(LineupTest, StaysOnTheLowestRankOfAnotherHost) {
  const RankProcess hub = {"a", "a pid 1", 1};
  const RankProcess far = {"b", "b pid 2", 2};
  const RankProcess farther = {"c", "c pid 3", 3};
  EXPECT_EQ(line_up(hub, std::vector{hub, far, farther}).standby_rank(), 1);
}

TEST(LineupTest, HasNoRankBelowZero) {
  Lineup lineup;
  lineup.primary.ranks = {0};
  EXPECT_TRUE(decode_lineup(encode(lineup), 2).ok());
  lineup.primary.ranks = {-1};
  const auto decoded = decode_lineup(encode(lineup), 2);
  EXPECT_EQ(text_of(decoded.status()), "a lineup names unknown ranks");
}

}  // namespace
}  // namespace tutti::bootstrap
