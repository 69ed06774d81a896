// SPDX-License-Identifier: Apache-2.0
#include "log/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <mutex>

namespace tutti::log {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"off", "error", "warn", "info", "debug", "trace"};

thread_local std::string rank_text;  // "3/8 "
thread_local int own_rank = -1;

struct Sink {
  std::mutex mutex;
  std::string file;
  Filter filter;
  std::shared_ptr<spdlog::logger> logger = make(std::make_shared<spdlog::sinks::stderr_sink_mt>());

  static std::shared_ptr<spdlog::logger> make(spdlog::sink_ptr sink) {
    auto logger = std::make_shared<spdlog::logger>("tutti", std::move(sink));
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
    logger->set_pattern("%H:%M:%S.%f %v");
    return logger;
  }
};

Sink& sink() {
  static Sink* const instance = new Sink;  // never destroyed: threads may log while the process ends
  return *instance;
}

std::string expand(std::string_view pattern) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] == '%' && (next == 'h' || next == 'p')) {
      out += next == 'h' ? std::string(host.data()) : std::to_string(getpid());
      ++i;
    } else {
      out += pattern[i];
    }
  }
  return out;
}

}  // namespace

std::string_view to_string(Level level) {
  return kNames[static_cast<size_t>(level)];
}

Level level_from(std::string_view name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? Level::kWarn : static_cast<Level>(found - kNames.begin());
}

Status configure(Level level, std::string_view file) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  const std::string path = expand(file);
  if (path != out.file) {
    try {
      out.logger = path.empty() ? Sink::make(std::make_shared<spdlog::sinks::stderr_sink_mt>())
                                : Sink::make(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    } catch (const spdlog::spdlog_ex& error) {
      return Status(Code::kConfig, fmt::format("log.file: cannot write {}: {}; choose another file, or none for stderr",
                                               path, error.what()));
    }
    out.file = path;
  }
  detail::threshold.store(static_cast<int>(level), std::memory_order_relaxed);
  return {};
}

void set_failure_level(Level level) {
  detail::failure_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void set_filter(Filter filter) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  out.filter = std::move(filter);
}

void set_rank(int rank, int size) {
  own_rank = size > 0 ? rank : -1;
  rank_text = size > 0 ? fmt::format("{}/{} ", rank, size) : std::string();
}

void write(Level level, std::string_view text) {
  std::shared_ptr<spdlog::logger> logger;
  Filter filter;
  {
    Sink& out = sink();
    const std::lock_guard lock(out.mutex);
    logger = out.logger;
    filter = out.filter;
  }
  if (filter && !filter(level, own_rank, text)) return;
  std::string line(text.substr(0, text.find_last_not_of('\n') + 1));
  for (size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, " | ");
  logger->log(spdlog::level::info, "{} {}{}", to_string(level), rank_text, line);
}

}  // namespace tutti::log
