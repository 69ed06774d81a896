// SPDX-License-Identifier: Apache-2.0
// Suggestions for misspelled words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::config {

/// The word of `known` that is nearest to `word` in edits (Levenshtein, 1966), in any case of letters; empty if none is
/// near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);
/// "; did you mean 'x'?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace tutti::config
