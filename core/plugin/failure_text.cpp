// SPDX-License-Identifier: Apache-2.0
#include "plugin/failure_text.h"

#include <utility>

namespace tutti::plugin {
namespace {

thread_local std::string failure_text;
thread_local const void* failed_self = nullptr;  // of the plugin that gave the text

}  // namespace

std::string take_failure_text() {
  return std::exchange(failure_text, {});
}

std::string take_failure_text_of(const void* self) {
  return failed_self == self ? take_failure_text() : std::string();
}

void leave_failure_text(std::string text, const void* self) {
  failure_text = std::move(text);
  failed_self = self;
}

std::string take_reason() {
  std::string why = take_failure_text();
  return why.empty() ? "it does not say why (PLG-14)" : why;
}

}  // namespace tutti::plugin
