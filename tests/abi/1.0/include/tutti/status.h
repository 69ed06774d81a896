// SPDX-License-Identifier: Apache-2.0
// Status and Result: the return types of calls that can fail. No call of Tutti throws an exception.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#if defined(_WIN32)
#error "Tutti runs on Linux"
#endif
#define TUTTI_API __attribute__((visibility("default")))

namespace tutti {

/// The kind of an outcome. The values are part of the plugin ABI (TUTTI_OK to TUTTI_INTERNAL in plugin/types.h).
enum class Code : int32_t {
  kOk = 0,
  kAgain = 1,               ///< not an error: the call could do nothing now; call it again
  kInvalidArgument = 2,     ///< the caller passed a value that can never work
  kNotFound = 3,            ///< a named object (plugin, file, key, device) does not exist
  kUnsupported = 4,         ///< the request is valid, but this build, plugin or device cannot do it
  kFailedPrecondition = 5,  ///< the object is in the wrong state for this call, or calls are in the wrong order
  kVersionMismatch = 6,     ///< the two sides were built for different versions or ABIs
  kConfig = 7,              ///< the configuration is wrong; the text names file, line and key
  kSystem = 8,              ///< the operating system refused; the text contains the meaning of errno
  kDevice = 9,              ///< a device (CUDA) call failed
  kRemote = 10,             ///< a peer is lost or reported a failure; the text names it
  kTimeout = 11,            ///< a deadline passed; the text names the awaited rank or event
  kAborted = 12,            ///< the communicator was aborted
  kMismatch = 13,           ///< ranks disagree: on the call, the plugins or the configuration
  kInternal = 14,           ///< a bug in Tutti or in a plugin
};

/// The stable lower-case name of a code, for example "invalid argument".
constexpr std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kAgain:
      return "again";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kFailedPrecondition:
      return "failed precondition";
    case Code::kVersionMismatch:
      return "version mismatch";
    case Code::kConfig:
      return "configuration error";
    case Code::kSystem:
      return "system error";
    case Code::kDevice:
      return "device error";
    case Code::kRemote:
      return "remote error";
    case Code::kTimeout:
      return "timeout";
    case Code::kAborted:
      return "aborted";
    case Code::kMismatch:
      return "mismatch between ranks";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

/// Success, or a failure: a code, and a text that names the cause, the place and the remedy.
/// Success is one null pointer. Copies of a failure share its text.
/// Threads: several threads may call the const members of one object at once.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : failure_(std::make_shared<const Failure>(Failure{code, std::move(text)})) {}

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : failure_->code; }
  /// The text of a failure; empty on success.
  std::string_view text() const { return ok() ? std::string_view() : std::string_view(failure_->text); }
  /// The code and the text: "invalid argument: count is negative"; "ok" on success.
  std::string to_string() const {
    if (ok()) return "ok";
    return std::string(tutti::to_string(code())).append(": ").append(text());
  }
  /// The same failure with `context` and ": " before its text. Success stays success.
  Status with_context(std::string_view context) const {
    if (ok()) return *this;
    return {code(), std::string(context).append(": ").append(text())};
  }

 private:
  struct Failure {
    Code code;
    std::string text;
  };
  std::shared_ptr<const Failure> failure_;
};

/// A value, or the Status of the failure that left no value.
/// Errors: value(), * and -> require ok(). A Result that is made of a Status requires a failure.
/// Threads: several threads may call the const members of one object at once.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Status failure) : status_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tutti

/// Evaluates `expression`, a Status. If it is a failure, returns it from the calling function.
#define TUTTI_TRY(expression)                                                                    \
  do {                                                                                           \
    if (::tutti::Status tutti_status_ = (expression); !tutti_status_.ok()) return tutti_status_; \
  } while (false)

#define TUTTI_CONCAT_INNER(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_INNER(a, b)
/// Evaluates `expression`, a Result. Assigns its value to `target`, which may declare a variable:
/// TUTTI_ASSIGN(auto file, open(path)). If it is a failure, returns its Status from the calling function. The macro is
/// several statements, so an `if` around it needs braces.
#define TUTTI_ASSIGN(target, expression) TUTTI_ASSIGN_AS(TUTTI_CONCAT(tutti_result_, __LINE__), target, expression)
#define TUTTI_ASSIGN_AS(result, target, expression) \
  auto result = (expression);                       \
  if (!result.ok()) return result.status();         \
  target = *std::move(result)
