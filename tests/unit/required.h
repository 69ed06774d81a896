// SPDX-License-Identifier: Apache-2.0
// Preconditions of tests. A precondition that fails throws: GoogleTest then reports the text and goes on to the next
// test, where a dereferenced failure would end the program.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "tutti/status.h"

namespace tutti::test {

inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

/// The value of the result. Throws the text of a failure.
template <class T>
T required(Result<T> result) {
  require(result.ok(), result.status().to_string());
  return *std::move(result);
}

}  // namespace tutti::test
