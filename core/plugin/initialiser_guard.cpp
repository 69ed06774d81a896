// SPDX-License-Identifier: Apache-2.0
#include "plugin/initialiser_guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/fork.h"

namespace tutti::plugin {
namespace {

thread_local const char* loading = nullptr;
std::terminate_handler of_application = nullptr;

void blame(const std::string& did) {
  fmt::print(stderr, "tutti: TUTTI-P05 plugin {} does not load: a static initialiser {}; get another build of it\n",
             loading, did);
}

std::string thrown() {
  const std::exception_ptr exception = std::current_exception();
  if (exception == nullptr) return "called std::terminate()";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return fmt::format("threw an exception ({})", error.what());
  } catch (...) {
    return "threw an exception";
  }
}

[[noreturn]] void on_terminate() {
  if (loading != nullptr) {
    blame(thrown());
  } else if (of_application != nullptr) {
    of_application();
  }
  std::abort();
}

/// exit() of an initialiser would end the process as if all were well.
void on_exit() {
  if (loading == nullptr) return;
  blame("ended the process (exit)");
  std::fflush(nullptr);
  ::_exit(1);
}

std::mutex& mutex() {
  static std::mutex& instance = base::process_mutex();
  return instance;
}

}  // namespace

InitialiserGuard::InitialiserGuard(std::string file) : file_(std::move(file)), outer_(loading) {
  if (outer_ == nullptr) lock_ = std::unique_lock(mutex());
  // Runs before the handlers that were registered earlier. If there is no memory for it, exit() goes unnoticed.
  [[maybe_unused]] static const int registered = std::atexit(on_exit);
  loading = file_.c_str();
  if (std::get_terminate() != on_terminate) of_application = std::set_terminate(on_terminate);
}

InitialiserGuard::~InitialiserGuard() {
  loading = outer_;
  const bool ours = std::get_terminate() == on_terminate;  // an initialiser may have set a handler to stay
  if (loading == nullptr && ours) std::set_terminate(of_application);
}

}  // namespace tutti::plugin
