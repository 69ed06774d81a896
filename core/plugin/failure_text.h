// SPDX-License-Identifier: Apache-2.0
// The texts of failures, which a plugin gives to host->fail before it returns a code.
//
// Threads: each thread has a text of its own.
#pragma once

#include <string>

namespace tutti::plugin {

/// The last text that a plugin gave to host->fail in this thread; empty: none. Clears the text.
std::string take_failure_text();
/// The same of the plugin with this `self`; empty, and clears nothing, if the text is of a different plugin.
std::string take_failure_text_of(const void* self);
/// Leaves the reason of a failure for take_failure_text(). `self`: of the plugin that gave it; null: no plugin did.
void leave_failure_text(std::string text, const void* self = nullptr);
/// take_failure_text(), or a sentence that names the rule which the plugin breaks by giving no text.
std::string take_reason();

}  // namespace tutti::plugin
