// SPDX-License-Identifier: Apache-2.0
#include "log/log.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/file.h"
#include "base/fork.h"

namespace tutti::log {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"off", "error", "warn", "info", "debug", "trace"};

thread_local std::string rank_text;  // "3/8 "
thread_local int own_rank = -1;

/// Appends lines to a file until one cannot be written.
class FileSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  FileSink(base::Fd file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  const Status& failure() const { return failure_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (failure_.ok()) failure_ = base::write_all(file_, std::string_view(line.data(), line.size()), name_);
  }
  void flush_() override {}

 private:
  base::Fd file_;
  std::string name_;
  Status failure_;
};

/// Counts equal warnings of the ranks of this process, so that a thousand ranks do not write a thousand lines.
class Warnings {
 public:
  /// The line to write for a rank's warning: the text, or the text with a count for the 10th, 100th, ... rank; empty:
  /// none. A rank that repeats the warning that it wrote first is not counted, and writes it again.
  std::string line_of(int rank, std::string_view text) {
    std::string key(text);
    const auto found = seen_.find(key);
    if (found == seen_.end()) {
      if (seen_.size() == kMost) seen_.clear();
      seen_.emplace(key, Seen{rank, 1, 10});
      return key;
    }
    Seen& seen = found->second;
    if (seen.rank == rank) return key;
    if (++seen.count < seen.next) return {};
    seen.next *= 10;
    return fmt::format("{} (the {}th time in this process)", key, seen.count);
  }

 private:
  struct Seen {
    int rank;  ///< that wrote it first
    uint64_t count;
    uint64_t next;  ///< count of the next line
  };
  static constexpr size_t kMost = 512;  // texts; one more, and counting begins again
  std::unordered_map<std::string, Seen> seen_;
};

struct Sink {
  std::mutex mutex;  // guards the log, its sink included; held over forks, so that a child can log
  std::string file;
  std::shared_ptr<FileSink> file_sink;  // null: stderr
  Filter filter;
  Warnings warnings;
  std::shared_ptr<spdlog::logger> logger = make(std::make_shared<spdlog::sinks::stderr_sink_st>());

  void to_stderr() {
    file_sink.reset();
    logger = make(std::make_shared<spdlog::sinks::stderr_sink_st>());
  }
  void to_file(std::shared_ptr<FileSink> sink) {
    file_sink = std::move(sink);
    logger = make(file_sink);
  }

  static std::shared_ptr<spdlog::logger> make(spdlog::sink_ptr sink) {
    auto logger = std::make_shared<spdlog::logger>("tutti", std::move(sink));
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
    logger->set_pattern("%H:%M:%S.%f %v");
    return logger;
  }
};

Sink& sink() {
  static Sink* const instance = [] {
    auto* const made = new Sink;  // never destroyed: threads may log while the process ends
    base::hold_over_forks(made->mutex);
    return made;
  }();
  return *instance;
}

/// The standard streams are written as they are: behind their names may be a pipe.
Result<base::Fd> open(const std::string& path) {
  const int stream = path == "/dev/stderr" ? STDERR_FILENO : path == "/dev/stdout" ? STDOUT_FILENO : -1;
  if (stream >= 0) {
    base::Fd copy(::fcntl(stream, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return base::file_error("cannot write " + path);
    return copy;
  }
  std::error_code ignored;  // open_to_append() says why
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (!directory.empty()) std::filesystem::create_directories(directory, ignored);
  return base::open_to_append(path);
}

void write_line(spdlog::logger& logger, Level level, std::string_view text) {
  logger.log(spdlog::level::info, "{} {}{}", to_string(level), rank_text, text);
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
    if (path.empty()) {
      out.to_stderr();
    } else {
      auto opened = open(path);
      if (!opened.ok()) {
        return Status(Code::kConfig, fmt::format("log.file: {}; an empty name means stderr", opened.status().text()));
      }
      out.to_file(std::make_shared<FileSink>(*std::move(opened), path));
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
  std::string line(text.substr(0, text.find_last_not_of('\n') + 1));
  for (size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, " | ");
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  if (out.filter && !out.filter(level, own_rank, text)) return;
  if (level == Level::kWarn && own_rank >= 0 && !enabled(Level::kInfo)) {
    line = out.warnings.line_of(own_rank, line);
    if (line.empty()) return;
  }
  write_line(*out.logger, level, line);
  if (out.file_sink == nullptr || out.file_sink->failure().ok()) return;
  const std::string why(out.file_sink->failure().text());
  out.to_stderr();
  write_line(*out.logger, Level::kError, fmt::format("log.file: {}; the log goes on here", why));
  write_line(*out.logger, level, line);
}

}  // namespace tutti::log
