// How a piece of somebody's input is shown in a one-line message, safely.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace perseus {

// The text in double quotes, cut after about 40 characters. Control characters and bytes that are
// not UTF-8 are shown as \xNN, so that a message is always one line of text and cannot steer a
// terminal.
std::string Excerpt(std::string_view text);

// Whether it is UTF-8 without control characters, tabs and line ends among them.
bool IsPrintable(std::string_view text);

// The name with the least edit distance (Levenshtein) to `text`; empty if none is near enough to
// be what somebody meant (a third of its letters wrong at most).
std::string_view NearestName(std::string_view text, std::span<const std::string_view> names);

}  // namespace perseus
