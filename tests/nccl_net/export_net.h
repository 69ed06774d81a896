// SPDX-License-Identifier: Apache-2.0
// libnccl-net-tutti.so as NCCL sees it: one of its tables, in the version MOCK_VERSION. A result that is no success is
// an exception with a sentence.
#pragma once

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tables.h"

#define EXPORT_TEXT(text) #text
#define EXPORT_SYMBOL(version) "ncclNetPlugin_v" EXPORT_TEXT(version)  // the macro of the number is replaced first

namespace {

using Clock = std::chrono::steady_clock;
using Handle = std::array<uint8_t, 128>;

constexpr int kRemoteError = 6;

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& sentence) {
  if (!holds) throw Failure(sentence);
}

/// The end of a wait. `check` fails when it has passed.
class Deadline {
 public:
  explicit Deadline(std::string awaited, int seconds = 15)
      : awaited_(std::move(awaited)), end_(Clock::now() + std::chrono::seconds(seconds)) {}
  void check() const { require(Clock::now() < end_, "timed out: " + awaited_); }

 private:
  std::string awaited_;
  Clock::time_point end_;
};

std::mutex warnings_mutex;          // guards warnings
std::vector<std::string> warnings;  // of the plugin

void log_line(int level, unsigned long /*subsystems*/, const char* /*place*/, int /*line*/, const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (level != 2) return;
  const std::lock_guard lock(warnings_mutex);
  warnings.emplace_back(text.data());
}

std::string last_warning() {
  const std::lock_guard lock(warnings_mutex);
  return warnings.empty() ? "no warning" : warnings.back();
}

void succeed(int code, const char* entry) {
  require(code == 0, std::string(entry) + " returns " + std::to_string(code) + ": " + last_warning());
}

#if MOCK_SINCE(10)
int ignore_event(void** /*event*/, int /*type*/, void* /*parent*/, int64_t /*plugin*/, void* /*data*/) {
  return 0;
}
#endif

/// A communicator's use of the plugin. Threads: as NCCL, one per connection, and any for setup.
class Plugin {
 public:
  /// Loads the file.
  explicit Plugin(const char* file) {
    void* const image = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    require(image != nullptr, image == nullptr ? std::string("the plugin does not load: ") + dlerror() : "");
    table_ = static_cast<const Net*>(dlsym(image, kSymbol));
    require(table_ != nullptr, std::string("the plugin has no table ") + kSymbol);
  }
  ~Plugin() {
#if MOCK_SINCE(11)
    if (context_ != nullptr) table_->finalize(context_);
#endif
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  int init() {
#if MOCK_SINCE(11)
    Settings settings{-1};
    return table_->init(&context_, 42, &settings, log_line, ignore_event);
#elif MOCK_SINCE(10)
    return table_->init(log_line, ignore_event);
#else
    return table_->init(log_line);
#endif
  }
  std::string name() const {
    return table_->name;
  }
  int devices() const {
    int count = -1;
    succeed(table_->devices(&count), "devices");
    return count;
  }
  Properties properties(int device) const {
    Properties out;
    std::memset(&out, 0xee, sizeof out);
    succeed(table_->properties(device, &out), "getProperties");
    return out;
  }
  int properties_code(int device) const {
    Properties out{};
    return table_->properties(device, &out);
  }

  void* listen(Handle& handle) const {
    void* listener = nullptr;
#if MOCK_SINCE(11)
    succeed(table_->listen(context_, 0, handle.data(), &listener), "listen");
#else
    succeed(table_->listen(0, handle.data(), &listener), "listen");
#endif
    require(listener != nullptr, "listen gives no listener");
    return listener;
  }
  /// Null: not yet.
  void* connect(Handle& handle) const {
    void* comm = nullptr;
    [[maybe_unused]] void* device_handle = nullptr;
#if MOCK_SINCE(11)
    succeed(table_->connect(context_, 0, handle.data(), &comm, &device_handle), "connect");
#elif MOCK_SINCE(10)
    Settings settings{-1};
    succeed(table_->connect(0, &settings, handle.data(), &comm, &device_handle), "connect");
#elif MOCK_SINCE(7)
    succeed(table_->connect(0, handle.data(), &comm, &device_handle), "connect");
#else
    succeed(table_->connect(0, handle.data(), &comm), "connect");
#endif
    return comm;
  }
  /// Null: not yet.
  void* accept(void* listener) const {
    void* comm = nullptr;
#if MOCK_SINCE(7)
    void* device_handle = nullptr;
    succeed(table_->accept(listener, &comm, &device_handle), "accept");
#else
    succeed(table_->accept(listener, &comm), "accept");
#endif
    return comm;
  }
  void close_sender(void* comm) const {
    succeed(table_->close_sender(comm), "closeSend");
  }
  void close_receiver(void* comm) const {
    succeed(table_->close_receiver(comm), "closeRecv");
  }
  void close_listener(void* listener) const {
    succeed(table_->close_listener(listener), "closeListen");
  }

  void* add_region(void* comm, void* data, size_t bytes) const {
    void* region = nullptr;
    succeed(table_->add_region(comm, data, static_cast<RegionSize>(bytes), 1, &region), "regMr");
    require(region != nullptr, "regMr gives no region");
    return region;
  }
  void remove_region(void* comm, void* region) const {
    succeed(table_->remove_region(comm, region), "deregMr");
  }

  /// Null: not now.
  void* send(void* comm, void* data, size_t bytes, int tag, void* region) const {
    void* request = nullptr;
#if MOCK_SINCE(10)
    succeed(table_->send(comm, data, bytes, tag, region, nullptr, &request), "isend");
#else
    succeed(table_->send(comm, data, static_cast<Size>(bytes), tag, region, &request), "isend");
#endif
    return request;
  }
  /// Null: not now. At most 8 buffers. With the marker that NCCL sets where it needs no completion.
  void* receive(void* comm, std::vector<void*> data, const std::vector<size_t>& bytes, std::vector<int> tags,
                std::vector<void*> regions) const {
    void* request = MOCK_SINCE(9) ? reinterpret_cast<void*>(1) : nullptr;
    std::vector<Size> sizes(bytes.begin(), bytes.end());
    const int count = static_cast<int>(data.size());
#if MOCK_SINCE(10)
    std::vector<void*> parents(data.size());
    succeed(
        table_->receive(comm, count, data.data(), sizes.data(), tags.data(), regions.data(), parents.data(), &request),
        "irecv");
#else
    succeed(table_->receive(comm, count, data.data(), sizes.data(), tags.data(), regions.data(), &request), "irecv");
#endif
    return request;
  }
  /// The request, which is null where nothing has to be flushed.
  void* flush(void* comm, void* data, int bytes, void* region) const {
    void* request = this_marker();
    succeed(table_->flush(comm, 1, &data, &bytes, &region, &request), "iflush");
    return request;
  }
  /// Done or not; `sizes` may be null.
  bool test(void* request, int* sizes) const {
    int done = -1;
    succeed(table_->test(request, &done, sizes), "test");
    require(done == 0 || done == 1, "test leaves `done` as it was");
    return done == 1;
  }
  int test_code(void* request) const {
    int done = -1;
    std::array<int, 8> sizes{};
    return table_->test(request, &done, sizes.data());
  }

 private:
  static constexpr const char* kSymbol = EXPORT_SYMBOL(MOCK_VERSION);

  /// A value that an entry must replace.
  static void* this_marker() {
    return reinterpret_cast<void*>(uintptr_t{0x5a5a});
  }

  const Net* table_ = nullptr;
#if MOCK_SINCE(11)
  void* context_ = nullptr;
#endif
};

}  // namespace
