// SPDX-License-Identifier: Apache-2.0
// Machines as files: files that are read, refusals with their position, and round trips.
#include "topology/document.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "topology/system.h"
#include "unit/topology_machines.h"
#include "unit/topology_random.h"

namespace tutti::topology {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Document read(std::string_view text) {
  auto document = text.starts_with('<') ? Document::read_xml(text, "a.xml") : Document::read_yaml(text, "a.yaml");
  EXPECT_TRUE(document.ok()) << document.status().to_string() << "\n" << text;
  return document.ok() ? *std::move(document) : Document();
}

std::string refusal(std::string_view text) {
  const auto document = text.starts_with('<') ? Document::read_xml(text, "a.xml") : Document::read_yaml(text, "a.yaml");
  EXPECT_FALSE(document.ok()) << text;
  return document.ok() ? std::string() : std::string(document.status().text());
}

TEST(BusIds, AreReadAndWritten) {
  EXPECT_EQ(BusId::parse("0000:3b:00.0")->value, 0x3b000u);
  EXPECT_EQ(BusId::parse("3B:1f.7")->text(), "0000:3b:1f.7");
  EXPECT_EQ(BusId::parse("3b:00")->text(), "0000:3b:00.0");
  EXPECT_EQ(BusId::parse("fffffff:ff:ff.0")->text(), "fffffff:ff:ff.0");
  EXPECT_EQ(BusId::parse("FFFFFFFF:FF:FF.0")->text(), "ffffffff:ff:ff.0");
  for (const char* wrong : {"", "x", "0000:3b:00.0.0", "0000:3b:00.", "0:0:0:0", "3b", "000000000:00:00.0",
                            "0000:3b:00.10", "0000:3bb:00.0", "0000:3b:00.g", " 00:00.0"}) {
    EXPECT_FALSE(BusId::parse(wrong).ok()) << wrong;
  }
}

/// The content of files in the field.
constexpr const char* kField = R"(<!-- made by a tool -->
<system version="1">
  <cpu host_hash="0x66a9eca0df0dba9a" numaid="-1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
    <pci busid="0000:00:06.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="0">
      <gpu dev="0x1" sm="90" rank="0" gdr="1" keep="1">
        <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>
        <nvlink target="0000:00:06.0" count="2"/>
        <c2c bw="50" count="9"/>
      </gpu>
      <pcilink target="0000:00:07.0"/>
    </pci>
    <pci busid="0000:00:07.0" link_speed="" link_width=""/>
    <nic>
      <net name="eth0" dev="0" latency="0.000000" speed="10000" port="0" guid="0xffffffffffffffff" gdr="0"/>
    </nic>
  </cpu>
</system>
)";

TEST(Documents, QuirksOfTheField) {
  const Document document = read(kField);
  ASSERT_EQ(document.cpus.size(), 1u);
  const Cpu& cpu = document.cpus[0];
  EXPECT_EQ(cpu.numa, -1);
  EXPECT_EQ(cpu.host_hash, "0x66a9eca0df0dba9a");
  ASSERT_TRUE(cpu.pci[0].gpu);
  const Gpu& gpu = *cpu.pci[0].gpu;
  EXPECT_EQ(gpu.dev, 1);
  EXPECT_TRUE(gpu.direct);
  EXPECT_EQ(gpu.position.line, 5);
  ASSERT_EQ(gpu.links.size(), 2u);
  EXPECT_EQ(gpu.links[0].to, PeerLink::Target::kSwitch);
  EXPECT_EQ(gpu.links[1].to, PeerLink::Target::kGpu);
  EXPECT_EQ(gpu.c2c->count, 9u);
  EXPECT_THAT(cpu.pci[0].peers, ElementsAre(cpu.pci[1].bus));
  EXPECT_EQ(cpu.nics[0].nets[0].guid, UINT64_MAX);
  EXPECT_FALSE(document.is_overlay());
  EXPECT_NE(document.find(*BusId::parse("00:07.0")), nullptr);
  EXPECT_EQ(document.find(*BusId::parse("00:08.0")), nullptr);
}

TEST(Documents, MachinesOfAmd) {
  const Document document = read(
      R"(<system version="2"><cpu numaid="0"><pci busid="0:1:0.0"><gpu dev="0" sm="94" gcn="942" arch="38912">
         <xgmi target="0:2:0.0" count="1" tclass="0x038000"/></gpu></pci></cpu></system>)");
  EXPECT_EQ(document.version, 2);
  EXPECT_EQ(document.cpus[0].pci[0].gpu->gcn, "gfx942");
  EXPECT_EQ(document.cpus[0].pci[0].gpu->links[0].kind, PeerLink::Kind::kXgmi);
  const auto chip = [](std::string_view gcn) {
    return *read(fmt::format("tutti_topology: 1\ncpu: {{pci: {{busid: '1:0', gpu: {{gcn: '{}'}}}}}}", gcn))
                .cpus[0]
                .pci[0]
                .gpu;
  };
  EXPECT_EQ(chip("910").gcn, "gfx90a") << "HIP's number of it";
  EXPECT_EQ(chip("908").gcn, "gfx908");
  EXPECT_EQ(chip("gfx90a").gcn, "gfx90a");
}

TEST(Documents, YamlIsPleasant) {
  const Document document = read(R"(
tutti_topology: 1
name: small
cpu:
  - numaid: 0
    nic: {net: {name: eth0, speed: 10000}}
    pci:
      - {busid: "0000:01:00.0", gpu: {sm: 90, gdr: true, nvlink: {target: switch, count: 18}}}
      - {busid: "0000:02:00.0", gpu: {sm: 90, nvlink: [{target: "01:00.0"}, {target: "01:00.0", count: 2}]}}
)");
  EXPECT_EQ(document.name, "small");
  EXPECT_EQ(document.cpus[0].nics[0].nets[0].mbps, 10000);
  EXPECT_TRUE(document.cpus[0].pci[0].gpu->direct);
  EXPECT_EQ(document.cpus[0].pci[0].gpu->links[0].to, PeerLink::Target::kSwitch);
  EXPECT_EQ(document.cpus[0].pci[1].gpu->links[1].count, 2u);
  EXPECT_EQ(document.cpus[0].pci[1].position.line, 9);
}

TEST(Documents, RefusedWithPlaceAndAdvice) {
  const auto xml = [](std::string_view inside) {
    return fmt::format("<system version=\"1\">\n<cpu numaid=\"0\">\n{}\n</cpu></system>", inside);
  };
  EXPECT_THAT(refusal("<system"), HasSubstr("a.xml:1: "));
  EXPECT_THAT(refusal("<system>\n<cpu>\n</system>"), HasSubstr("a.xml:3: "));
  EXPECT_THAT(refusal("<graphs version=\"1\"/>"), HasSubstr("a.xml:1: this is a file of channels"));
  EXPECT_THAT(refusal("<machine/>"), HasSubstr("<machine> is no topology"));
  EXPECT_THAT(refusal(xml("<gpx/>")),
              AllOf(HasSubstr("a.xml:3: <gpx> does not belong in <cpu>"), HasSubstr("pci, nic")));
  EXPECT_THAT(refusal(xml("words")), HasSubstr("a.xml:2: text within <cpu>"));
  EXPECT_THAT(refusal(xml("<pci/>")), HasSubstr("a.xml:3: <pci>: lacks busid"));
  EXPECT_THAT(refusal(xml("<pci busid=\"1\"/>")), HasSubstr("'1' is no PCI address"));
  EXPECT_THAT(refusal(xml("<pci busid=\"1:0.0\"/>\n<pci busid=\"0000:01:00.0\"/>")),
              HasSubstr("a.xml:4: <pci>: bus id 0000:01:00.0 is already that of line 3"));
  EXPECT_THAT(refusal(xml("<pci busid=\"1:0.0\" link_width=\"x16\"/>")), HasSubstr("link_width=\"x16\" is no number"));
  for (const char* speed : {"fast", "0 GT/s", "-8 GT/s", "16 GB/s", "nan"}) {
    EXPECT_THAT(refusal(xml(fmt::format("<pci busid=\"1:0.0\" link_speed=\"{}\"/>", speed))),
                AllOf(HasSubstr("a.xml:3: <pci>: link_speed"), HasSubstr("is no speed of a PCI link")));
  }
  EXPECT_THAT(refusal("<system version=\"1\">\n<cpu affinity=\"zzz\"/></system>"),
              HasSubstr("a.xml:2: <cpu>: affinity: 'zzz' is no mask of processors"));
  EXPECT_THAT(refusal("<system version=\"1\">\n<cpu processors=\"-1\"/></system>"),
              HasSubstr("a.xml:2: <cpu>: processors=\"-1\" is no number from 0 to 65536"));
  EXPECT_THAT(refusal(xml("<pci busid=\"1:0.0\"><gpu><nvlink target=\"2:0.0\" count=\"0\"/></gpu></pci>")),
              HasSubstr("count=\"0\" is no number from 1 to 1024"));
  EXPECT_THAT(refusal(xml("<pci busid=\"1:0.0\"><gpu/><gpu/></pci>")), HasSubstr("second GPU"));
  EXPECT_THAT(refusal(xml("<nic><net speed=\"-1\"/></nic>")), HasSubstr("speed=\"-1\" is no number from 0"));
  EXPECT_THAT(refusal(xml("<nic><net speed=\"nan\"/></nic>")), HasSubstr("is no number"));
  EXPECT_THAT(refusal("<system version=\"3\"/>"), HasSubstr("version=\"3\" is no number from 1 to 2"));
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += fmt::format("<pci busid=\"{:x}:0.0\">", i);
  for (int i = 0; i < 40; ++i) deep += "</pci>";
  EXPECT_THAT(refusal(xml(deep)), HasSubstr("more than 31 levels"));
  EXPECT_THAT(refusal(std::string("<system>") + std::string(17 << 20, ' ')), HasSubstr("more than 16 MiB"));
  EXPECT_THAT(refusal("<system/>\n<system/>"), HasSubstr("a.xml:2: there is more after </system>"));

  EXPECT_THAT(refusal("cpu: []\n"), HasSubstr("no topology"));
  EXPECT_THAT(refusal("tutti_topology: 2\n"), HasSubstr("a.yaml:1:17: tutti_topology is 1"));
  EXPECT_THAT(refusal("tutti_topology: 1\ncpus: []\n"),
              AllOf(HasSubstr("a.yaml:2:1: 'cpus' does not belong in system"), HasSubstr("did you mean 'cpu'")));
  EXPECT_THAT(refusal("tutti_topology: 1\ncpu:\n  - pci: 3\n"), HasSubstr("a.yaml:3:10: 'pci' is a map"));
  EXPECT_THAT(refusal("tutti_topology: 1\ncpu:\n  - numaid: [1]\n"), HasSubstr("numaid is a single value"));
  EXPECT_THAT(refusal("tutti_topology: 1\ncpu: [\n"), HasSubstr("a.yaml:"));
  EXPECT_THAT(refusal("tutti_topology: 1\n" + std::string(2 << 20, '#')), HasSubstr("more than 1 MiB"));
}

TEST(Documents, WhatIsNoFileIsRefused) {
  EXPECT_THAT(Document::load("/no/such/file").status().text(),
              HasSubstr("cannot read the topology file /no/such/file: No such file or directory; check the path"));
  EXPECT_THAT(Document::load("/").status().text(), HasSubstr("/: is a folder; name the file in it that describes"));
  EXPECT_THAT(Document::load("/dev/zero").status().text(), HasSubstr("/dev/zero: is a device; name a file"));
  EXPECT_EQ(Document::load("/dev/null").status().code(), Code::kConfig);
  EXPECT_THAT(Document::load("/proc/self/mem").status().text(),
              HasSubstr("cannot read the topology file /proc/self/mem: Input"));
}

/// The content of a pipe, written `count` times; `written` gets the number of complete writes.
Status load_from_pipe(const std::string& text, int count, int& written) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const auto path = fmt::format("/proc/self/fd/{}", ends[0]);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);  // the reader may have had enough
  std::thread writer([&] {
    while (written < count && write(ends[1], text.data(), text.size()) > 0) ++written;
    close(ends[1]);
  });
  Status status = Document::load(path).status();
  close(ends[0]);
  writer.join();
  std::signal(SIGPIPE, handler);
  return status;
}

TEST(Documents, ArePipedInUpToALimit) {
  int written = 0;
  EXPECT_TRUE(load_from_pipe(kField, 1, written).ok()) << "as shells name a program's output";
  constexpr int kGigabyte = 1 << 10;
  written = 0;
  const Status endless = load_from_pipe("<" + std::string((1 << 20) - 1, ' '), kGigabyte, written);
  EXPECT_THAT(endless.text(), AllOf(HasSubstr("/proc/self/fd/"), HasSubstr("more than 16 MiB; name a file")));
  EXPECT_LT(written, 20) << "the rest is not read";
}

void expect_round_trip(const Document& document) {
  EXPECT_TRUE(read(write_yaml(document)) == document) << write_yaml(document);
  EXPECT_TRUE(read(write_xml(document)) == document) << write_xml(document);
}

TEST(Documents, EveryFieldComesBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1000 && !testing::Test::HasFailure(); ++round)
    expect_round_trip(test::random_document(random));
}

TEST(Documents, DepthComesBack) {
  Document deep;
  deep.cpus.emplace_back();
  auto* below = &deep.cpus[0].pci;
  for (uint32_t level = 2; level < 29; ++level) below = &below->emplace_back(test::pci(test::bus(level))).children;
  below->push_back(test::nic(test::bus(1), 0, 1));
  expect_round_trip(deep);
}

/// The same nodes, links and paths.
void expect_same_system(const Document& a, const Document& b) {
  const auto left = System::build(a);
  const auto right = System::build(b);
  ASSERT_EQ(left.ok(), right.ok()) << left.status().text() << right.status().text();
  if (!left.ok()) return;
  ASSERT_EQ(left->nodes().size(), right->nodes().size());
  ASSERT_EQ(left->links().size(), right->links().size());
  for (uint32_t i = 0; i < left->nodes().size(); ++i) {
    EXPECT_EQ(left->name(i), right->name(i));
    for (uint32_t j = 0; j < left->nodes().size(); ++j) {
      EXPECT_EQ(left->path(i, j).type, right->path(i, j).type);
      EXPECT_EQ(left->path(i, j).gbs, right->path(i, j).gbs);
    }
  }
}

TEST(Documents, ComeBackTheSame) {
  expect_round_trip(read(kField));
  for (const Document& machine :
       {test::dgx1v(), test::hgx(8, 8), test::power9(), test::grace_hopper(), test::mi300x()}) {
    expect_round_trip(machine);
    expect_same_system(machine, read(write_xml(machine)));
    expect_same_system(machine, read(write_yaml(machine)));
  }
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const Document machine = test::random_machine(random);
    expect_round_trip(machine);
    expect_same_system(machine, read(round % 2 == 0 ? write_xml(machine) : write_yaml(machine)));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Documents, MachinesOfTheFieldComeBackTheSame) {
  const std::filesystem::path folder = std::filesystem::path(TUTTI_SOURCE_DIR) / "../shared/topologies";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the folder of real machines is not here";
  int machines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    const auto document = Document::load(entry.path().string());
    if (entry.path().string().ends_with("graph.xml")) {
      EXPECT_THAT(document.status().text(), HasSubstr("file of channels"));
      continue;
    }
    ASSERT_TRUE(document.ok()) << document.status().to_string();
    expect_round_trip(*document);
    expect_same_system(*document, read(write_xml(*document)));
    ++machines;
  }
  EXPECT_GE(machines, 7);
}

/// Damaged files are read or refused, always with their place.
TEST(Documents, SurviveDamage) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::array corpus = {std::string(kField), write_yaml(read(kField)), write_xml(test::mi300x()),
                             write_yaml(test::workstation())};
  constexpr std::array<std::string_view, 18> kTokens = {
      "<", ">",  "/>",      "\"",   "<pci busid=\"1:0.0\">", "</pci>", "<gpu>", "-1", "0x", ":", "- ", "{", "[",
      "}", "\n", {"\0", 1}, "&#1;", "99999999999999999999"};
  constexpr std::string_view kCharacters = "0123456789abcdefx.-:\"";
  constexpr int kRounds = 20'000;
  int read_count = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = corpus[random() % corpus.size()];
    const bool xml = text.starts_with('<');
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 20);
          break;
        case 1:
          text.insert(at, kTokens[random() % kTokens.size()]);
          break;
        default:
          text[at] = kCharacters[random() % kCharacters.size()];
      }
    }
    const auto document = xml ? Document::read_xml(text, "damaged") : Document::read_yaml(text, "damaged");
    if (!document.ok()) {
      ASSERT_TRUE(document.status().text().starts_with("damaged")) << document.status().text();
      continue;
    }
    ++read_count;
    ASSERT_TRUE(read(write_yaml(*document)) == *document);
    ASSERT_TRUE(read(write_xml(*document)) == *document);
    [[maybe_unused]] const auto system = System::build(*document);
  }
  fmt::print("{} of {} are read\n", read_count, kRounds);
  EXPECT_GT(read_count, kRounds / 50);
  EXPECT_LT(read_count, kRounds / 2);
}

}  // namespace
}  // namespace tutti::topology
