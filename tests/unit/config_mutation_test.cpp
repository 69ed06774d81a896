// SPDX-License-Identifier: Apache-2.0
// Mutated files: each loads, or is refused with a text that begins with its place. TUTTI_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "unit/config_folder.h"

namespace tutti::config {
namespace {

constexpr int kMutants = 6000;

class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<std::string> corpus) : random_(seed), corpus_(std::move(corpus)) {}

  std::string next() {
    std::string text = pick(corpus_);
    for (size_t edits = 1 + below(6); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void edit(std::string& text) {
    static const std::vector<std::string> kTokens = {"&a ",
                                                     "*a",
                                                     "!!int ",
                                                     "---\n",
                                                     "...\n",
                                                     "? ",
                                                     "- ",
                                                     ": ",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     "#",
                                                     "|\n",
                                                     ">-\n",
                                                     "\"",
                                                     "'",
                                                     "\t",
                                                     "\r\n",
                                                     std::string(1, '\0'),
                                                     "\xff\xfe",
                                                     "\xef\xbb\xbf",
                                                     "%YAML 1.2\n",
                                                     "~",
                                                     "<<",
                                                     "rules:",
                                                     "\\x",
                                                     "010",
                                                     "-1",
                                                     "1e9",
                                                     "99999999999999999999",
                                                     "\n\n",
                                                     "  ",
                                                     "settings.",
                                                     "\xc3"};
    const size_t at = below(text.size() + 1);
    const size_t length = std::min(text.size() - at, below(40));
    switch (below(7)) {
      case 0:
        text.insert(at, pick(kTokens));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4: {  // a piece of a different file
        const std::string& other = pick(corpus_);
        text.insert(at, other.substr(below(other.size()), below(200)));
        break;
      }
      case 5:
        text.insert(at, std::string(1 + below(200), pick(kTokens)[0]));
        break;
      default:
        text.resize(at);
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> corpus_;
};

class ConfigMutation : public ConfigFolder {
 protected:
  static std::vector<std::string> corpus() {
    std::vector<std::string> out = {
        "rules:\n  - match: {collective: all_reduce, max_size: 64KiB}\n    choose: {protocol: ll}\n",
        "shm: {slots: 4, slot_size: 4K}\ntimeouts: {bootstrap: 1m}\n", "settings.net.socket: {interface: [a, b]}\n",
        "log.level: debug\nplugins.network: [a, b, c]\n"};
    for (const char* file : {"default.yaml", "examples/single-host.yaml", "examples/two-hosts-socket.yaml"}) {
      std::ifstream in(std::string(TUTTI_SOURCE_DIR "/configs/") + file);
      out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return out;
  }
};

TEST_F(ConfigMutation, LoadsOrSaysWhy) {
  const char* given = std::getenv("TUTTI_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("TUTTI_TEST_SEED={}\n", seed);
  Mutator mutator(seed, corpus());
  int loaded = 0;
  for (int i = 0; i < kMutants; ++i) {
    const std::string text = mutator.next();
    const auto config = load(text);
    if (config.ok()) {
      ++loaded;
      // An accepted configuration is usable: every value can be written and read back.
      for (const auto& item : config->items()) ASSERT_FALSE(item.key.empty());
      ASSERT_FALSE(config->agreement().empty());
    } else {
      ASSERT_EQ(config.status().code(), Code::kConfig) << "mutant " << i;
      ASSERT_THAT(std::string(config.status().text()), testing::MatchesRegex("job.yaml(:[0-9]+:[0-9]+)?: (.|\n)+"))
          << "mutant " << i << ":\n"
          << text;
    }
  }
  fmt::print("{} of {} mutants load\n", loaded, kMutants);
  // Both sides must have been seen, or the mutations test nothing.
  EXPECT_GT(loaded, kMutants / 100);
  EXPECT_LT(loaded, kMutants * 95 / 100);
}

}  // namespace
}  // namespace tutti::config
