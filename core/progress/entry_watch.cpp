// SPDX-License-Identifier: Apache-2.0
#include "progress/entry_watch.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "log/log.h"

namespace tutti::progress {
namespace {

constexpr std::chrono::milliseconds kInterval{250};
constexpr std::chrono::milliseconds kLate{200};  // a look may be so late on a busy machine

}  // namespace

EntryMark::EntryMark(EntryWatch* watch, std::string place) : watch_(watch), place_(std::move(place)) {
  if (watch_ != nullptr) watch_->add(*this);
}

EntryMark::~EntryMark() {
  if (watch_ != nullptr) watch_->remove(*this);
}

void EntryMark::set_place(std::string place) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  place_ = std::move(place);
}

EntryWatch::EntryWatch(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

EntryWatch::~EntryWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void EntryWatch::add(EntryMark& mark) {
  const std::lock_guard lock(mutex_);
  marks_.push_back(&mark);
}

void EntryWatch::remove(EntryMark& mark) {
  const std::lock_guard lock(mutex_);
  std::erase(marks_, &mark);
}

/// `lost`: time in which this thread did not run either, as in a stopped process. It does not count.
Status EntryWatch::look(Clock::time_point now, Clock::duration lost) {
  Status failure;
  for (EntryMark* mark : marks_) {
    const char* const entry = mark->entry_.load(std::memory_order_relaxed);
    const uint64_t calls = mark->calls_.load(std::memory_order_relaxed);
    if (entry == nullptr || calls != mark->seen_calls_) {
      mark->seen_calls_ = calls;
      mark->since_ = now;
      mark->warned_ = mark->failed_ = false;
      continue;
    }
    mark->since_ += lost;
    const auto stuck = now - mark->since_;
    if (stuck < options_.warn_after) continue;
    const std::string text = fmt::format(
        "network '{}': entry '{}' of its plugin has not returned for {:.1f} s, {}; all connections of "
        "this rank wait meanwhile",
        options_.network, entry, std::chrono::duration<double>(stuck).count(), mark->place_);
    if (!std::exchange(mark->warned_, true)) log::warn("{}", text);
    if (options_.deadline.count() == 0 || stuck < options_.deadline) continue;
    if (!std::exchange(mark->failed_, true)) failure = Status(Code::kTimeout, text);
    ends_ = ends_ || stuck >= options_.deadline + options_.grace;
  }
  return failure;
}

void EntryWatch::run() {
  ::pthread_setname_np(::pthread_self(), "tutti-watchdog");
  auto last = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    const auto now = Clock::now();
    const auto lost = std::max(now - last - kInterval - kLate, Clock::duration::zero());
    last = now;
    const Status failure = look(now, lost);
    const bool ends = std::exchange(ends_, false);
    if (failure.ok() && !ends) continue;
    lock.unlock();
    if (!failure.ok()) options_.on_deadline(failure);
    if (ends) options_.end_process();
    lock.lock();
  }
}

}  // namespace tutti::progress
