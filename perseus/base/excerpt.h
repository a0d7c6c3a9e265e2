// Shows a part of a user's input in a one-line message, safely.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace perseus {

// Returns the text in double quotes, cut after about 40 characters. Each byte of a control
// character or an invisible character, and each byte that is not UTF-8, becomes \xNN. So the result
// is always one line, cannot send control sequences to a terminal, and shows every byte of the
// text.
std::string Excerpt(std::string_view text);

// As Excerpt, but without quotes and at any length. Use it for text from elsewhere, such as a path,
// in a message.
std::string OneLine(std::string_view text);

// Whether the text is UTF-8 and has neither control characters (such as tabs and line ends) nor
// invisible characters.
bool IsPrintable(std::string_view text);

// Returns the name with the least edit distance to `text`. A swap of neighbors is one edit. Capital
// and small letters are the same. If the distance is more than a third of the length of the name,
// the user probably meant none of the names: returns an empty text.
std::string_view NearestName(std::string_view text, std::span<const std::string_view> names);

}  // namespace perseus
