// SPDX-License-Identifier: Apache-2.0
// Numbers of plan files that grow with the round of a repeat: "3", "3 + k", "3 - 2k".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::program {

/// A number in round k of a repeat: first + growth × k.
struct Affine {
  uint32_t first = 0;
  int64_t growth = 0;
};

/// Nothing if the text is no such number.
std::optional<Affine> parse_affine(std::string_view text);

/// The text of a number whose growth is below `modulus`. Of the two ways to say it, up or down, the smaller one.
std::string affine_text(uint32_t first, uint32_t growth, uint32_t modulus);

}  // namespace tutti::program
