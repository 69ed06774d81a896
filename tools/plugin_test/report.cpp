// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace tutti::tools::plugin_test {
namespace {

size_t count(const std::vector<RuleResult>& results, Verdict verdict) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [&](const RuleResult& one) { return one.verdict == verdict; }));
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

Status write(const std::string& path, const std::string& content) {
  std::ofstream out(path);
  out << content;
  out.close();
  if (out.good()) return {};
  return base::file_error(fmt::format("cannot write '{}'", path));
}

}  // namespace

void print_rules() {
  for_each_rule([](const Rule& rule) { fmt::print("{:7} {:16} {}\n", rule.number, rule.name, rule.sentence); });
}

void print_subject(const Subject& subject) {
  fmt::print("{} '{}' {} ({}), seed {}\n", subject.kind, subject.name, subject.version, subject.file, subject.seed);
  std::fflush(stdout);
}

void print_results(const std::vector<RuleResult>& results) {
  for_each_rule([&](const Rule& rule) {
    std::string verdicts;
    for (const RuleResult& result : results) {
      if (result.rule != &rule) continue;
      verdicts += fmt::format("  {}: {}", to_string(result.where), to_string(result.verdict));
    }
    if (!verdicts.empty()) fmt::print("{:7} {:16}{}\n", rule.number, rule.name, verdicts);
    for (const RuleResult& result : results) {
      if (result.rule != &rule || result.verdict == Verdict::kPassed) continue;
      fmt::print("        {}: {}\n", to_string(result.where), result.text);
      if (result.violated == nullptr) continue;
      fmt::print("        violates {} {}: {}\n", result.violated->number, result.violated->name,
                 result.violated->sentence);
    }
  });
  fmt::print("{} passed, {} failed, {} skipped\n", count(results, Verdict::kPassed), count(results, Verdict::kFailed),
             count(results, Verdict::kSkipped));
}

Status write_json(const std::string& path, const Subject& subject, const std::vector<RuleResult>& results) {
  nlohmann::ordered_json document = {{"file", subject.file}, {"kind", subject.kind},
                                     {"name", subject.name}, {"version", subject.version},
                                     {"seed", subject.seed}, {"results", nlohmann::ordered_json::array()}};
  for (const RuleResult& result : results) {
    nlohmann::ordered_json entry = {{"rule", result.rule->number},
                                    {"name", result.rule->name},
                                    {"where", to_string(result.where)},
                                    {"result", to_string(result.verdict)},
                                    {"seconds", result.seconds}};
    if (result.violated != nullptr) entry["violates"] = result.violated->number;
    if (!result.text.empty()) entry["text"] = result.text;
    document["results"].push_back(std::move(entry));
  }
  return write(path, document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Status write_junit(const std::string& path, const Subject& subject, const std::vector<RuleResult>& results) {
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format("<testsuite name=\"{} {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n", escape(subject.name),
                     escape(subject.version), results.size(), count(results, Verdict::kFailed),
                     count(results, Verdict::kSkipped));
  for (const RuleResult& result : results) {
    xml += fmt::format("  <testcase classname=\"{}\" name=\"{} {}\" time=\"{:.3f}\">", to_string(result.where),
                       result.rule->number, result.rule->name, result.seconds);
    if (result.verdict == Verdict::kFailed) {
      xml += fmt::format("<failure type=\"{}\" message=\"{}\"/>", result.violated->number, escape(result.text));
    } else if (result.verdict == Verdict::kSkipped) {
      xml += fmt::format("<skipped message=\"{}\"/>", escape(result.text));
    }
    xml += "</testcase>\n";
  }
  return write(path, xml + "</testsuite>\n");
}

}  // namespace tutti::tools::plugin_test
