// SPDX-License-Identifier: Apache-2.0
// The plugin host: finding, refusing, loading, opening and closing. Defective plugins come from tests/zoo, or are good
// plugins with changed bytes.
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "plugin/list.h"
#include "plugin/loader.h"
#include "plugin/registry.h"
#include "plugin/search.h"
#include "tutti/device/simple.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"

namespace tutti::plugin {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kPlugins = TUTTI_BINARY_DIR "/lib/tutti/plugins";
const fs::path kZoo = TUTTI_BINARY_DIR "/tests/zoo";

config::Config configured(std::vector<std::pair<std::string, std::string>> settings = {}) {
  config::LoadOptions options;
  options.site_file = "";
  options.settings = std::move(settings);
  options.settings.emplace_back("plugins.path", kPlugins.string());
  return test::required(config::Config::load(options));
}

std::vector<char> contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A directory that goes when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tutti-plugin-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path write(const std::string& name, const std::vector<char>& bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string refusal(Kind kind, const std::string& name, const fs::path& file) {
  auto config = configured();
  auto image = Image::load(kind, name, file);
  if (!image.ok()) return std::string(image.status().text());
  auto plugin = Plugin::open(*image, config);
  return plugin.ok() ? "accepted" : std::string(plugin.status().text());
}

/// The text about a plugin of the zoo. Each text names the file and the remedy.
std::string zoo(const std::string& name, Kind kind = Kind::kNetwork) {
  const fs::path file = kZoo / file_name(kind, name);
  std::string text = refusal(kind, name, file);
  if (text == "accepted") return text;
  EXPECT_THAT(text, HasSubstr(file.string()));
  EXPECT_THAT(
      text, testing::AnyOf(HasSubstr("; get another build of it"), HasSubstr("; correct the cause, or take it out of "),
                           HasSubstr("; install the library that it needs"),
                           HasSubstr("; remove it, or put the plugin there")));
  return text;
}

TEST(Zoo, EachDefectHasItsSentence) {
  EXPECT_EQ(zoo("good"), "accepted");
  EXPECT_EQ(zoo("null_self"), "accepted");
  EXPECT_THAT(zoo("tiny_table"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("table of 8 bytes"), HasSubstr("PLG-5")));
  EXPECT_THAT(zoo("null_operation"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("'send' is null")));
  EXPECT_THAT(zoo("null_claimed"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("'flush' is null"), HasSubstr("PLG-8")));
  EXPECT_THAT(zoo("entry_fails"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("internal error")));
  EXPECT_THAT(zoo("open_fails"), AllOf(HasSubstr("TUTTI-P08"), HasSubstr("the flux capacitor is cold")));
  EXPECT_THAT(zoo("open_silent"), AllOf(HasSubstr("TUTTI-P08"), HasSubstr("PLG-14")));
  EXPECT_THAT(zoo("other_name"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("impostor"), HasSubstr("PLG-2")));
  EXPECT_THAT(zoo("no_entry"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("tutti_plugin_entry_v1"), HasSubstr("PLG-1")));
  EXPECT_THAT(zoo("no_ops"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("table of operations is null")));
  EXPECT_THAT(zoo("no_note"), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("no Tutti plugin")));
  EXPECT_THAT(zoo("other_abi"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("ABI 1.77, in its table"), HasSubstr("PLG-2")));
  EXPECT_THAT(zoo("no_settings"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("settings at address 0")));
  EXPECT_EQ(zoo("short_ops"), "accepted");
  EXPECT_THAT(zoo("short_claimed"), AllOf(HasSubstr("TUTTI-P06"), HasSubstr("'event_fd' is null"), HasSubstr("PLG-8")));
  EXPECT_EQ(zoo("long_settings"), "accepted");
  EXPECT_THAT(zoo("tiny_setting"),
              AllOf(HasSubstr("TUTTI-P06"), HasSubstr("setting 0 of 16 bytes"), HasSubstr("PLG-5")));
  EXPECT_THAT(zoo("future_claim"),
              AllOf(HasSubstr("TUTTI-P06"), HasSubstr("the capabilities 0x10000000000, which network ABI 1.0 does not "
                                                      "define (PLG-8)")));
  EXPECT_THAT(zoo("unresolved"),
              AllOf(HasSubstr("TUTTI-P05"), HasSubstr("undefined symbol: tutti_zoo_nowhere; install the library")));
  EXPECT_THAT(zoo("throws", Kind::kTuner),
              AllOf(HasSubstr("TUTTI-P08"), HasSubstr("exception: the table has no legs"), HasSubstr("plugins.tuner")));
}

TEST(Versions, AHostTakesItsMajorVersionUpToItsMinor) {
  EXPECT_TRUE(takes({1, 0}, {1, 0}));
  EXPECT_TRUE(takes({1, 2}, {1, 1}));
  EXPECT_FALSE(takes({1, 0}, {1, 1})) << "a plugin that is newer than the host";
  EXPECT_FALSE(takes({2, 0}, {1, 0}));
  EXPECT_FALSE(takes({1, 3}, {2, 0}));
  EXPECT_TRUE(takes({0, 12}, {0, 12}));
  EXPECT_FALSE(takes({0, 12}, {0, 11})) << "0.x is not stable";
  EXPECT_EQ(abi_of(Kind::kNetwork), (Abi{1, 0}));
  EXPECT_EQ(abi_of(Kind::kTuner), (Abi{1, 2}));
}

TEST(Versions, EntriesBeyondAPluginsTableAreNull) {
  const auto image = test::required(Image::load(Kind::kNetwork, "short_ops", kZoo / "tutti-net-short_ops.so"));
  const auto* ops = static_cast<const tutti_network_ops*>(image->table().ops);
  EXPECT_NE(ops->close_listener, nullptr);
  EXPECT_EQ(ops->event_fd, nullptr);
  EXPECT_EQ(ops->arm, nullptr);
}

TEST(Versions, LongerSettingsAreReadAsFarAsTheyAreKnown) {
  const auto image = test::required(Image::load(Kind::kNetwork, "long_settings", kZoo / "tutti-net-long_settings.so"));
  const std::vector<config::Key> settings = image->settings();
  ASSERT_EQ(settings.size(), 2u);
  EXPECT_THAT(settings[0].name, testing::EndsWith(".first"));
  EXPECT_THAT(settings[1].name, testing::EndsWith(".second"));
  EXPECT_EQ(settings[1].default_text, "two");
}

/// Static initialisers run before the loader can ask the plugin anything.
TEST(EarlyDeathTest, AStaticInitialiserNamesItsPlugin) {
  const auto load = [](const char* name) {
    const fs::path file = kZoo / "early" / file_name(Kind::kTuner, name);
    const auto image = Image::load(Kind::kTuner, name, file);
    // AddressSanitizer's dlopen lets an exception pass to the loader, which returns it.
    if (!image.ok()) {
      fmt::print(stderr, "{}\n", image.status().to_string());
      std::abort();
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(load("throws_early"), testing::KilledBySignal(SIGABRT),
              "TUTTI-P05 plugin .*/tutti-tuner-throws_early.so does not load: .*no legs");
  EXPECT_EXIT(load("exits_early"), testing::ExitedWithCode(1),
              "TUTTI-P05 plugin .*/tutti-tuner-exits_early.so does not load: a static initialiser ended the process");
  EXPECT_EXIT(load("terminates_early"), testing::KilledBySignal(SIGABRT),
              "tutti-tuner-terminates_early.so does not load: a static initialiser called std::terminate");
}

TEST(EarlyDeathTest, TheApplicationsHandlerIsBackAfterwards) {
  const auto own = [] { std::_Exit(3); };
  const std::terminate_handler before = std::set_terminate(own);
  EXPECT_EQ(zoo("good"), "accepted");
  EXPECT_EQ(std::get_terminate(), static_cast<std::terminate_handler>(own));
  EXPECT_EXIT(std::terminate(), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(std::exit(4), testing::ExitedWithCode(4), "");
  std::set_terminate(before);
}

/// Root can give files away, and other users' files are refused only for root.
class Trust : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make files of other users";
    const auto bytes = contents(kZoo / "tutti-net-good.so");
    file_ = folder_.write("tutti-net-good.so", bytes);
    fs::permissions(file_, fs::perms(0644));
  }
  std::string verdict(const std::string& trust = "owner") const {
    const auto image = Image::load(Kind::kNetwork, "good", file_, trust);
    return image.ok() ? "accepted" : std::string(image.status().text());
  }
  /// Refuses with the reason and a remedy, except where the user trusts every file.
  void expect_refused(const std::string& why) const {
    EXPECT_THAT(verdict(), AllOf(HasSubstr("TUTTI-P09 the plugin " + fs::canonical(file_).string()), HasSubstr(why),
                                 HasSubstr("chown"), HasSubstr("TUTTI_PLUGINS_TRUST=any")));
    EXPECT_EQ(verdict("any"), "accepted");
  }

  static constexpr uid_t kOther = 54321;
  Folder folder_;
  fs::path file_;
};

TEST_F(Trust, AFileThatOnlyRootCanChangeIsAccepted) {
  EXPECT_EQ(verdict(), "accepted");
  fs::permissions(file_, fs::perms(0664));  // group of root
  EXPECT_EQ(verdict(), "accepted");
}

TEST_F(Trust, AFileOfAnotherUserIsRefused) {
  ASSERT_EQ(chown(file_.c_str(), kOther, 0), 0);
  expect_refused("is owned by user 54321 (mode 0644)");
}

TEST_F(Trust, AFileThatOthersMayWriteIsRefused) {
  fs::permissions(file_, fs::perms(0646));
  expect_refused("may be written by other users (mode 0646)");
  fs::permissions(file_, fs::perms(0664));
  ASSERT_EQ(chown(file_.c_str(), 0, kOther), 0);
  expect_refused("may be written by other users (mode 0664)");
}

TEST_F(Trust, ADirectoryThatOthersMayChangeIsRefused) {
  const std::string folder = fs::canonical(folder_.path()).string();
  fs::permissions(folder, fs::perms(0777));
  expect_refused("is in " + folder + ", which other users may write (mode 0777)");
  fs::permissions(folder, fs::perms(01777));  // sticky: the file stays root's
  EXPECT_EQ(verdict(), "accepted");
  ASSERT_EQ(chown(file_.c_str(), kOther, 0), 0);
  expect_refused("is owned by user 54321");
  ASSERT_EQ(chown(file_.c_str(), 0, 0), 0);
  fs::permissions(folder, fs::perms(0755));
  ASSERT_EQ(chown(folder.c_str(), kOther, kOther), 0);
  expect_refused("is in " + folder + ", which user 54321 owns");
}

TEST_F(Trust, ALinkIsFollowedToTheFile) {
  const fs::path link = folder_.path() / "links" / "tutti-net-good.so";
  fs::create_directory(link.parent_path());
  fs::create_symlink(file_, link);
  EXPECT_TRUE(Image::load(Kind::kNetwork, "good", link).ok());
  ASSERT_EQ(chown(file_.c_str(), kOther, 0), 0);
  const auto image = Image::load(Kind::kNetwork, "good", link);
  EXPECT_THAT(std::string(image.status().text()), HasSubstr("is owned by user 54321"));
}

/// Offset of the note's descriptor in a plugin's image.
size_t descriptor_of(const std::vector<char>& image) {
  const std::string owner("Tutti\0\0\0", 8);
  for (size_t at = 0; (at = std::string_view(image.data(), image.size()).find(owner, at)) != std::string_view::npos;
       ++at) {
    uint32_t layout = 0;
    std::memcpy(&layout, image.data() + at + 8, sizeof layout);
    if (at >= 12 && layout == TUTTI_NOTE_LAYOUT) return at + 8;
  }
  ADD_FAILURE() << "no note";
  return 0;
}

TEST(Files, ThatAreNoPluginOfThisMachine) {
  const Folder folder;
  const auto good = contents(kZoo / "tutti-net-good.so");
  const size_t note = descriptor_of(good);
  const auto refused = [&](const std::vector<char>& bytes) {
    return refusal(Kind::kNetwork, "good", folder.write("tutti-net-good.so", bytes));
  };

  const std::string text = "this is not a shared object";
  EXPECT_THAT(refused({text.begin(), text.end()}), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("no ELF header")));
  EXPECT_THAT(refused({}), HasSubstr("no ELF header"));
  EXPECT_THAT(refused({good.begin(), good.begin() + 40}), HasSubstr("cut off"));
  const auto behind_note = good.begin() + static_cast<long>(note + sizeof(tutti_plugin_note));
  EXPECT_THAT(refused({good.begin(), behind_note}), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("cut off")));
  auto changed = good;
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  const uint64_t too_long = good.size() + 1;
  std::memcpy(changed.data() + header.e_phoff + offsetof(Elf64_Phdr, p_filesz), &too_long, sizeof too_long);
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("a segment ends beyond the file's")));
  std::vector<char> large = good;  // with one segment: notes of more than 64 KiB
  large.resize(std::max<size_t>(good.size(), 1 << 20));
  const uint16_t one = 1;
  std::memcpy(large.data() + offsetof(Elf64_Ehdr, e_phnum), &one, sizeof one);
  const Elf64_Phdr notes{.p_type = PT_NOTE,
                         .p_flags = PF_R,
                         .p_offset = 0,
                         .p_vaddr = 0,
                         .p_paddr = 0,
                         .p_filesz = large.size(),
                         .p_memsz = large.size(),
                         .p_align = 4};
  std::memcpy(large.data() + header.e_phoff, &notes, sizeof notes);
  EXPECT_THAT(refused(large),
              AllOf(HasSubstr("TUTTI-P02"), HasSubstr("bytes of notes, and a plugin has at most 65536")));
  changed = good;
  const uint16_t many = 10'000;
  std::memcpy(changed.data() + offsetof(Elf64_Ehdr, e_phnum), &many, sizeof many);
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("damaged ELF header")));
  changed = good;
  changed[4] = 1;  // EI_CLASS
  EXPECT_THAT(refused(changed), HasSubstr("32-bit"));
  changed = good;
  changed[18] = 40;  // e_machine: ARM
  EXPECT_THAT(refused(changed), HasSubstr("another processor"));

  changed = good;
  changed[note + offsetof(tutti_plugin_note, abi_major)] = 7;
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P04"), HasSubstr("ABI 7."), HasSubstr("get a build")));
  changed = good;
  changed[note + offsetof(tutti_plugin_note, abi_minor)] = 99;
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P04"), HasSubstr(".99")));
  changed = good;
  changed[note + offsetof(tutti_plugin_note, kind)] = TUTTI_KIND_PROTOCOL;
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P03"), HasSubstr("is a protocol plugin, not a network plugin")));
  changed = good;
  changed[note + offsetof(tutti_plugin_note, name)] = 'X';
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P03"), HasSubstr("calls itself 'Xood'")));
  changed[note + offsetof(tutti_plugin_note, name)] = 27;  // escape
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("damaged")));
  changed = good;
  changed[note] = 2;  // layout
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("layout 2")));
  changed = good;
  changed[note - 16] = 100;  // n_descsz
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("cut off within its Tutti note")));
  changed = good;
  changed[note - 12] = 9;  // n_type: a note, but not ours
  EXPECT_THAT(refused(changed), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("no Tutti note")));
}

TEST(Files, ThatCannotBeRead) {
  const Folder folder;
  fs::create_directory(folder.path() / "tutti-algo-folder.so");
  fs::create_symlink("nowhere", folder.path() / "tutti-algo-link.so");
  for (const std::string name : {"folder", "link"}) {
    const auto file = find(Kind::kAlgorithm, name, {folder.path()});
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_THAT(refusal(Kind::kAlgorithm, name, *file), AllOf(HasSubstr("TUTTI-P02"), HasSubstr("cannot be read: ")));
  }
}

TEST(Files, MutatedImagesNeverCrashTheReader) {
  const char* given = std::getenv("TUTTI_TEST_SEED");
  const auto seed = given == nullptr ? std::random_device()() : static_cast<uint32_t>(std::stoul(given));
  std::cout << "TUTTI_TEST_SEED=" << seed << '\n';
  std::mt19937 random(seed);
  const auto good = contents(kZoo / "tutti-net-good.so");
  const size_t note = descriptor_of(good);
  constexpr int kRounds = 20000;
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto bytes = good;
    const size_t changes = 1 + random() % 8;
    for (size_t i = 0; i < changes; ++i) {
      // Only headers, program headers and the note are read.
      const size_t at = random() % 2 == 0 ? random() % 1024 : note - 24 + random() % 200;
      bytes[at] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto parsed = parse_note(std::as_bytes(std::span(bytes)));
    EXPECT_NE(parsed.ok(), !parsed.status().text().empty());
    accepted += parsed.ok() ? 1 : 0;
  }
  std::cout << accepted << " of " << kRounds << " read as plugins\n";
  EXPECT_TRUE(accepted > 0 && accepted < kRounds);
}

TEST(Search, FirstDirectoryCountsAndFailuresNameAll) {
  const Folder folder;
  const auto found = find(Kind::kAlgorithm, "ring", {folder.path(), kPlugins});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, kPlugins / "tutti-algo-ring.so");
  // A broken file stands in the way of a good one behind it: the search does not go on.
  folder.write("tutti-algo-ring.so", {'x'});
  EXPECT_EQ(*find(Kind::kAlgorithm, "ring", {folder.path(), kPlugins}), folder.path() / "tutti-algo-ring.so");
  const auto missing = find(Kind::kAlgorithm, "rnig", {folder.path(), kPlugins});
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(std::string(missing.status().text()),
              AllOf(HasSubstr("TUTTI-P01"), HasSubstr("tutti-algo-rnig.so"), HasSubstr(folder.path().string()),
                    HasSubstr(kPlugins.string()), HasSubstr("did you mean 'ring'?")));
}

TEST(Search, FailuresNameAFileWithADifferentName) {
  const Folder folder;
  folder.write("libfast.so", {'x'});
  folder.write("tutti-net-faster.so", {'x'});
  const auto text_of = [&](Kind kind) { return std::string(find(kind, "fast", {folder.path()}).status().text()); };
  EXPECT_THAT(text_of(Kind::kNetwork), HasSubstr("; " + (folder.path() / "libfast.so").string() + " has a different"));
  fs::remove(folder.path() / "libfast.so");
  EXPECT_THAT(text_of(Kind::kNetwork), testing::Not(HasSubstr("has a different name"))) << "it is a different plugin";
  EXPECT_THAT(text_of(Kind::kAlgorithm), HasSubstr("tutti-net-faster.so has a different name"));
}

TEST(Search, NetworksAndTunersMayBeNamedWithAFile) {
  const auto parts = [](Kind kind, const std::string& named) {
    const Reference reference = reference_of(kind, named);
    return std::pair(reference.plugin, reference.file);
  };
  using Parts = std::pair<std::string, std::string>;
  EXPECT_EQ(parts(Kind::kNetwork, "nccl:/opt/x.so"), Parts("nccl", "/opt/x.so"));
  EXPECT_EQ(parts(Kind::kNetwork, "nccl:a:b"), Parts("nccl", "a:b"));
  EXPECT_EQ(parts(Kind::kTuner, "table:mine.yaml"), Parts("table", "mine.yaml"));
  EXPECT_EQ(parts(Kind::kNetwork, "nccl"), Parts("nccl", ""));
  EXPECT_EQ(parts(Kind::kNetwork, "/a:b/tutti-net-x.so"), Parts("/a:b/tutti-net-x.so", ""));
  EXPECT_EQ(parts(Kind::kNetwork, ":x"), Parts(":x", ""));
  EXPECT_EQ(parts(Kind::kAlgorithm, "ring:x"), Parts("ring:x", ""));
  EXPECT_EQ(name_of(Kind::kNetwork, "nccl:/opt/x.so"), "nccl");
  EXPECT_EQ(label_of(Kind::kNetwork, "nccl:/opt/x.so"), "nccl:/opt/x.so");
  EXPECT_EQ(label_of(Kind::kNetwork, "/opt/tutti-net-ib.so"), "ib");
  EXPECT_EQ(*find(Kind::kNetwork, "socket:x", {kPlugins}), kPlugins / "tutti-net-socket.so");
}

TEST(Search, GoesFromTheConfigurationToTheInstallation) {
  setenv("TUTTI_PLUGIN_PATH", "/c:/a::/d/../e", 1);
  const auto path = search_path({"/a/", "b", "/a"});
  unsetenv("TUTTI_PLUGIN_PATH");
  ASSERT_GE(path.size(), 6u);
  EXPECT_EQ(std::vector<fs::path>(path.begin(), path.begin() + 4),
            (std::vector<fs::path>{"/a", fs::current_path() / "b", "/c", "/e"}));
  EXPECT_THAT(path, testing::Contains(kPlugins)) << "beside the program";
  EXPECT_TRUE(path.back().string().ends_with("/tutti/plugins")) << path.back();
}

TEST(Settings, OfAPluginAreChecked) {
  const auto load = [](const char* key, const char* value) {
    auto config = configured({{key, value}});
    const auto registry = Registry::load(config, false);
    return registry.ok() ? std::string("accepted") : std::string(registry.status().text());
  };
  EXPECT_EQ(load("settings.tuner.table.memory_gbs", "50"), "accepted");
  EXPECT_THAT(load("settings.tuner.table.memroy_gbs", "50"), AllOf(HasSubstr("TUTTI-P07"), HasSubstr("memory_gbs")));
  EXPECT_THAT(load("settings.tuner.table.memory_gbs", "fast"), AllOf(HasSubstr("memory_gbs"), HasSubstr("fast")));
}

/// A message is a header and as many bytes as the layout says; it takes one slot, or `message_slots`.
TEST(Protocols, SlotsOfSimpleHaveRoomForTheHeader) {
  auto config = configured();
  const auto image =
      test::required(Image::load(Kind::kProtocol, "simple", (kPlugins / "tutti-proto-simple.so").string()));
  const auto simple = test::required(Plugin::open(image, config));
  for (const uint32_t link : {TUTTI_LINK_SHM, TUTTI_LINK_NETWORK}) {
    for (const uint64_t bytes : {64u, 1024u, 65536u}) {
      tutti_slot_layout layout{};
      layout.struct_size = sizeof layout;
      layout.slot_count = 8;
      layout.slot_bytes = bytes;
      ASSERT_EQ(simple->ops<tutti_protocol_ops>()->layout(simple->self(), link, &layout), TUTTI_OK);
      EXPECT_GE(layout.slot_bytes, bytes);
      EXPECT_GE(layout.slot_stride * std::max(1u, layout.message_slots),
                layout.slot_bytes + device::Simple::kHeaderBytes)
          << "link " << link;
    }
  }
}

TEST(Registry, GoesOnOnlyIfTold) {
  auto strict = configured({{"plugins.protocol", "simple,absent"}});
  EXPECT_EQ(Registry::load(strict, false).status().code(), Code::kNotFound);
  auto lenient = configured({{"plugins.protocol", "absent,simple"}, {"plugins.on_missing", "next"}});
  const auto registry = Registry::load(lenient, false);
  ASSERT_TRUE(registry.ok()) << registry.status().to_string();
  ASSERT_EQ((*registry)->of(Kind::kProtocol).size(), 1u);
  EXPECT_EQ((*registry)->of(Kind::kProtocol).front()->name(), "simple");
  EXPECT_THAT((*registry)->identity(), testing::Contains(HasSubstr("proto.simple 0.1.0")));
  auto hopeless = configured({{"plugins.protocol", "absent"}, {"plugins.on_missing", "next"}});
  EXPECT_EQ(Registry::load(hopeless, false).status().code(), Code::kNotFound);
}

TEST(Registry, NamesAPluginOnce) {
  auto config = configured({{"plugins.algorithm", "ring,direct,ring"}});
  EXPECT_THAT(std::string(Registry::load(config, false).status().text()), HasSubstr("names 'ring' twice"));
}

TEST(Registry, ChecksNamesBeforeItLoads) {
  const auto error = [](const char* key, const char* value) {
    auto config = configured({{key, value}});
    const auto registry = Registry::load(config, false);
    EXPECT_EQ(registry.status().code(), Code::kConfig) << key;
    return std::string(registry.status().text());
  };
  EXPECT_THAT(
      error("algorithm", "rnig"),
      AllOf(testing::StartsWith("application: algorithm: there is no algorithm plugin 'rnig'; did you mean "
                                "'ring'?; allowed: auto, ring, "),
            HasSubstr("direct/one-shot"), HasSubstr("searched for tutti-algo-rnig.so in " + kPlugins.string())));
  EXPECT_THAT(error("algorithm", "direct/oneshot"), HasSubstr("did you mean 'direct/one-shot'?"));
  EXPECT_THAT(error("protocol", "simpel"), HasSubstr("did you mean 'simple'?"));
  // The name is wrong even where no network is needed.
  EXPECT_THAT(error("network", "sokcet"), HasSubstr("did you mean 'socket'?"));
  EXPECT_THAT(error("network", "socket,sokcet"), HasSubstr("there is no network plugin 'sokcet'"));
  EXPECT_THAT(error("network", "socket,socket"), HasSubstr("network names 'socket' twice"));
  EXPECT_THAT(error("network", "socket,auto"), HasSubstr("'auto' stands alone"));
  EXPECT_THAT(error("settings.net.sokcet.streams", "2"), HasSubstr("did you mean 'socket'?"));
}

TEST(Registry, KeepsNetworksThatDoNotWorkHere) {
  const auto load = [](std::vector<std::pair<std::string, std::string>> settings) {
    settings.emplace_back("plugins.path", kZoo.string() + "," + kPlugins.string());
    config::LoadOptions options;
    options.site_file = "";
    options.settings = std::move(settings);
    auto config = config::Config::load(options);
    return Registry::load(*config, true);
  };
  const auto registry = load({{"plugins.network", "open_fails,good"}});
  ASSERT_TRUE(registry.ok()) << registry.status().to_string();
  const auto& networks = (*registry)->networks();
  ASSERT_EQ(networks.size(), 2u);
  EXPECT_EQ(networks[0].plugin, nullptr);
  EXPECT_THAT(std::string(networks[0].why.text()), HasSubstr("the flux capacitor is cold"));
  EXPECT_NE(networks[1].plugin, nullptr);
  // Ranks agree on the plugins even if a network works on some machines only.
  EXPECT_THAT((*registry)->identity(), testing::Contains(HasSubstr("net.open_fails 1.0")));
  EXPECT_THAT(std::string(load({{"plugins.network", "open_fails"}}).status().text()), HasSubstr("TUTTI-P08"));
  EXPECT_THAT(std::string(load({{"network", "open_fails"}}).status().text()), HasSubstr("TUTTI-P08"));
  EXPECT_EQ(load({{"plugins.network", "absent,good"}}).status().code(), Code::kNotFound);
}

TEST(Registry, MissesOnlyWhatIsNamed) {
  const Folder folder;
  const auto load = [&](const char* network) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings = {{"network", network}, {"plugins.path", folder.path().string()}};
    auto config = config::Config::load(options);
    const auto registry = Registry::load(*config, true);
    return registry.ok() ? std::string("loaded") : std::string(registry.status().text());
  };
  const auto file = folder.write("tutti-net-good.so", contents(kZoo / "tutti-net-good.so"));
  EXPECT_EQ(load("good"), "loaded");
  fs::remove(file);
  EXPECT_THAT(load("good"),
              AllOf(HasSubstr("application: network: there is no network plugin 'good'"),
                    HasSubstr(folder.path().string()), HasSubstr("allowed: auto, "), HasSubstr("socket")));
  EXPECT_EQ(load("socket"), "loaded");
}

TEST(Image, LoadsAndClosesAHundredTimes) {
  setenv("TUTTI_UNLOAD", "1", 1);
  const Folder folder;  // a file that no other test has loaded, and so pinned
  const fs::path file = folder.write("tutti-net-good.so", contents(kZoo / "tutti-net-good.so"));
  const auto mapped = [&] {
    std::ifstream maps("/proc/self/maps");
    const std::string all((std::istreambuf_iterator<char>(maps)), {});
    return all.find(file.string()) != std::string::npos;
  };
  for (int round = 0; round < 100; ++round) {
    auto config = configured();
    auto image = Image::load(Kind::kNetwork, "good", file);
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    ASSERT_TRUE(Plugin::open(*image, config).ok());
    EXPECT_TRUE(mapped());
  }
  unsetenv("TUTTI_UNLOAD");
  EXPECT_FALSE(mapped()) << "the image should be gone";
}

TEST(List, ShowsWhatIsThereAndWhatIsWrong) {
  const Folder folder;
  folder.write("tutti-net-broken.so", {'x'});
  fs::copy(kPlugins / "tutti-proto-ll.so", folder.path() / "tutti-proto-ll.so");
  config::LoadOptions options;
  options.site_file = "";
  options.settings = {{"plugins.path", folder.path().string()}};
  folder.write("tutti-algo-ring.so", {'x'});  // stands in front of the good one
  const auto all = list(*config::Config::load(options), false);
  const auto named = [&](const std::string& name) {
    return std::find_if(all.begin(), all.end(), [&](const Listed& one) { return one.file == folder.path() / name; });
  };
  ASSERT_NE(named("tutti-net-broken.so"), all.end());
  EXPECT_THAT(named("tutti-net-broken.so")->refused, HasSubstr("no ELF header"));
  ASSERT_NE(named("tutti-proto-ll.so"), all.end());
  EXPECT_EQ(named("tutti-proto-ll.so")->refused, "");
  EXPECT_EQ(named("tutti-proto-ll.so")->note->version, "0.1.0");
  const auto behind = std::find_if(all.begin(), all.end(),
                                   [](const Listed& one) { return one.file == kPlugins / "tutti-algo-ring.so"; });
  ASSERT_NE(behind, all.end());
  EXPECT_THAT(behind->refused, HasSubstr("stands behind one of the same name"));
}

}  // namespace
}  // namespace tutti::plugin
