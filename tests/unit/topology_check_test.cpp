// SPDX-License-Identifier: Apache-2.0
#include "topology/check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace tutti::topology {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// "line severity: problem" of every finding.
std::vector<std::string> findings(std::string_view inside) {
  const auto document = Document::read_xml(fmt::format("<system version=\"1\">\n{}</system>\n", inside), "test.xml");
  EXPECT_TRUE(document.ok()) << document.status().to_string();
  std::vector<std::string> texts;
  if (!document.ok()) return texts;
  for (const Finding& finding : check(*document)) {
    EXPECT_FALSE(finding.what.empty());
    texts.push_back(fmt::format("{} {}: {}", finding.position.line, to_string(finding.severity), finding.what));
  }
  return texts;
}

std::string cpu(std::string_view inside, std::string_view more = R"(affinity="000000ff")") {
  return fmt::format(
      "<cpu numaid=\"0\" {} arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n{}"
      "</cpu>\n",
      more, inside);
}

std::string gpu(int dev, std::string_view links, int sm = 80,
                std::string_view slot = R"(link_speed="" link_width="0")") {
  return fmt::format(
      "<pci busid=\"0000:{:02x}:00.0\" class=\"0x030200\" {}>\n"
      "<gpu dev=\"{}\" sm=\"{}\" rank=\"{}\" gdr=\"1\">\n{}</gpu></pci>\n",
      dev + 1, slot, dev, sm, dev, links);
}

std::string link(int dev, uint32_t count) {
  return fmt::format("<nvlink target=\"0000:{:02x}:00.0\" count=\"{}\" tclass=\"0x030200\"/>\n", dev + 1, count);
}

std::string adapter(std::string_view bus, std::string_view slot, int mbps) {
  const int number = std::stoi(std::string(bus.substr(5, 2)), nullptr, 16);  // no two devices have one number
  return fmt::format(
      "<pci busid=\"{}\" class=\"0x020700\" {}>\n<nic>\n<net name=\"mlx5_{}\" dev=\"{}\" speed=\"{}\" "
      "port=\"1\" guid=\"0x{:x}\" maxconn=\"1\" gdr=\"1\"/></nic></pci>\n",
      bus, slot, number, number, mbps, number);
}

std::string behind_switch(std::string_view bus, std::string_view inside) {
  return fmt::format("<pci busid=\"{}\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n{}</pci>\n", bus,
                     inside);
}

TEST(TopologyCheck, NothingToSayOfASoundMachine) {
  const std::string left = behind_switch(
      "0000:f0:00.0", gpu(0, link(1, 12)) + adapter("0000:e0:00.0", R"(link_speed="16 GT/s" link_width="16")", 200000));
  const std::string right = behind_switch("0000:f1:00.0", gpu(1, link(0, 12)) + adapter("0000:e1:00.0", "", 200000));
  EXPECT_THAT(findings(cpu(left + right)), IsEmpty());
}

TEST(TopologyCheck, AnOverlayIsNoted) {
  EXPECT_THAT(findings(cpu("<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>\n")),
              ElementsAre(HasSubstr("0 note: no GPU")));
  const std::string ports = "<nic>\n<net name=\"eth0\" dev=\"0\"/>\n<net name=\"eth1\" dev=\"0\"/></nic>\n";
  EXPECT_THAT(findings(cpu(ports)),
              ElementsAre(HasSubstr("0 note: no GPU"), HasSubstr("5 error: eth1 is device 0 of its network")));
}

TEST(TopologyCheck, LinksGoBothWays) {
  const auto found = findings(cpu(gpu(0, link(1, 4)) + gpu(1, link(0, 3) + link(2, 1)) + gpu(2, link(1, 1))));
  EXPECT_THAT(found, Contains(AllOf(HasSubstr("4 error: GPU 0"), HasSubstr("4 links to GPU 1"), HasSubstr("3 back"))));
  EXPECT_THAT(found, Not(Contains(HasSubstr("error: GPU 1"))));
}

TEST(TopologyCheck, SiblingsHaveTheSameLinks) {
  const auto found = findings(cpu(gpu(0, link(1, 2) + link(2, 2)) + gpu(1, link(0, 2)) + gpu(2, link(0, 2))));
  EXPECT_THAT(found, ElementsAre(AllOf(HasSubstr("warning: GPU 1"), HasSubstr("2 links, its siblings up to 4")),
                                 HasSubstr("warning: GPU 2")));
}

TEST(TopologyCheck, ChipsOfAnotherKindAreNoSiblings) {
  EXPECT_THAT(findings(cpu(gpu(0, link(1, 2)) + gpu(1, link(0, 2)) + gpu(2, "", 75))), IsEmpty());
}

TEST(TopologyCheck, NoChipHasMoreLinksThanItsOwn) {
  for (const auto& [sm, most] : {std::pair(70, 6u), {80, 12u}, {90, 18u}, {100, 18u}}) {
    EXPECT_EQ(max_nvlinks(sm), most);
    EXPECT_THAT(findings(cpu(gpu(0, link(1, most), sm) + gpu(1, link(0, most), sm))), IsEmpty()) << sm;
    EXPECT_THAT(findings(cpu(gpu(0, link(1, most + 1), sm) + gpu(1, link(0, most + 1), sm))),
                ElementsAre(HasSubstr("error: GPU 0"), HasSubstr("error: GPU 1")))
        << sm;
  }
  EXPECT_EQ(max_nvlinks(35), 0u);
  EXPECT_THAT(findings(cpu(gpu(0, link(1, 99), 777) + gpu(1, link(0, 99), 777))), IsEmpty()) << "an unknown chip";
}

TEST(TopologyCheck, ALinkToItselfJoinsNothing) {
  EXPECT_THAT(findings(cpu(gpu(0, link(0, 12)))),
              ElementsAre(HasSubstr("4 warning: GPU 0 (0000:01:00.0) has 12 links to itself")));
}

TEST(TopologyCheck, SlotsThatDoNotExist) {
  const auto slot = [](std::string_view speed, uint32_t width) {
    return findings(cpu(gpu(0, "", 80, fmt::format(R"(link_speed="{}" link_width="{}")", speed, width))));
  };
  for (const char* speed : {"", "2.5 GT/s", "5 GT/s", "8 GT/s", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"}) {
    EXPECT_THAT(slot(speed, 16), IsEmpty()) << speed;
  }
  for (const char* speed : {"10 GT/s", "3 GT/s", "128 GT/s"}) {
    EXPECT_THAT(slot(speed, 16), ElementsAre(HasSubstr("3 error: "))) << speed;
  }
  for (const uint32_t width : {3u, 5u, 6u, 24u, 64u}) {
    EXPECT_THAT(slot("8 GT/s", width), ElementsAre(HasSubstr("3 error: "))) << width;
  }
  EXPECT_THAT(slot("16 GT/s", 12), IsEmpty());
  EXPECT_THAT(slot("64 GT/s", 12), ElementsAre(HasSubstr("generation 6")));
}

TEST(TopologyCheck, PortsFasterThanTheirSlots) {
  const auto port = [](int mbps, std::string_view slot) {
    return findings(cpu(behind_switch("0000:f0:00.0", gpu(0, "") + adapter("0000:e0:00.0", slot, mbps))));
  };
  EXPECT_THAT(port(400000, R"(link_speed="16 GT/s" link_width="16")"),
              ElementsAre(AllOf(HasSubstr("warning: mlx5_224 carries 50 GB/s"), HasSubstr("31.5"))));
  EXPECT_THAT(port(200000, R"(link_speed="16 GT/s" link_width="16")"), IsEmpty());
  EXPECT_THAT(port(400000, R"(link_speed="32 GT/s" link_width="16")"), IsEmpty());
  EXPECT_THAT(port(400000, R"(link_speed="32 GT/s" link_width="0")"), IsEmpty()) << "not known";
  EXPECT_THAT(port(20000, R"(link_speed="5 GT/s" link_width="4")"), ElementsAre(HasSubstr("2 (5 GT/s")));
  EXPECT_THAT(port(18000, R"(link_speed="5 GT/s" link_width="4")"), ElementsAre(HasSubstr("carries 2.25 GB/s")))
      << "8 of 10 bits are data";
  EXPECT_THAT(port(8000, R"(link_speed="2.5 GT/s" link_width="4")"), IsEmpty()) << "the slot carries just as much";
}

TEST(TopologyCheck, GpusAndAdaptersBesideEachOther) {
  const std::string both = behind_switch("0000:f0:00.0", gpu(0, "") + adapter("0000:e0:00.0", "", 1000));
  const std::string alone = behind_switch("0000:f1:00.0", gpu(1, ""));
  const std::string management = behind_switch("0000:f2:00.0", adapter("0000:e2:00.0", "", 1000));
  EXPECT_THAT(findings(cpu(both + alone + management)),
              ElementsAre(HasSubstr("warning: GPU 1 (0000:02:00.0) has no network adapter"),
                          HasSubstr("note: network adapter 0000:e2:00.0 has no GPU")));
  EXPECT_THAT(findings(cpu(alone + management)), IsEmpty()) << "nobody has any: the machine is like that";
}

TEST(TopologyCheck, GpusWantProcessors) {
  EXPECT_THAT(findings(cpu(gpu(0, ""), "")),
              ElementsAre(HasSubstr("2 warning: NUMA node 0 with 1 GPUs has no affinity")));
  const std::string without_gpus = R"(<cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"/>)";
  EXPECT_THAT(findings(cpu(gpu(0, "")) + without_gpus + "\n"), Not(Contains(HasSubstr("affinity"))));
  EXPECT_THAT(findings(cpu(gpu(0, ""), R"(affinity="0000000f" processors="4.5")")),
              ElementsAre(HasSubstr("2 warning: NUMA node 0 states 4.5 processors, and its affinity has 4")));
  EXPECT_THAT(findings(cpu(gpu(0, ""), R"(affinity="0000000f" processors="0.5")")), IsEmpty());
}

TEST(TopologyCheck, WhatCannotBeBuiltIsAnError) {
  Document document;
  document.source = "made.xml";
  document.cpus.resize(1);
  document.cpus[0].pci.resize(2);  // a reader refuses two devices of one address; discovery and merging may make them
  for (int i = 0; i < 2; ++i) {
    document.cpus[0].pci[static_cast<size_t>(i)].gpu.emplace();
    document.cpus[0].pci[static_cast<size_t>(i)].position = {3 + i};
  }
  std::vector<std::string> found;
  for (const Finding& finding : check(document)) found.push_back(finding.what);
  EXPECT_THAT(found, Contains(HasSubstr("bus id 0000:00:00.0")));
}

TEST(TopologyCheck, FindingsNameTheirPlace) {
  Document document;
  document.source = "dgx.xml";
  EXPECT_EQ(to_string({Severity::kWarning, {7}, "GPU 3 is odd", "look"}, document),
            "dgx.xml:7: warning: GPU 3 is odd; look");
  EXPECT_EQ(to_string({Severity::kError, {}, "GPU 3 is odd", ""}, document), "dgx.xml: error: GPU 3 is odd");
}

}  // namespace
}  // namespace tutti::topology
