// Shows a part of a user's input in a one-line message, safely.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace perseus {

// Returns the text in double quotes, cut after about 40 characters. The bytes of control
// characters, invisible characters, and whatever is not UTF-8 become \xNN. So a message is always
// one line of text, cannot send control sequences to a terminal, and shows what it contains.
std::string Excerpt(std::string_view text);

// As Excerpt, but without quotes and without a limit of the length: for a message that contains
// text from elsewhere, such as a path.
std::string OneLine(std::string_view text);

// Whether the text is UTF-8 without control characters (tabs, line ends) and invisible characters.
bool IsPrintable(std::string_view text);

// Returns the name with the least edit distance to `text` (a swap of neighbors is one edit; capital
// and small letters are the same). Returns an empty text if the distance is more than a third of
// the name's length: the user probably meant none of the names.
std::string_view NearestName(std::string_view text, std::span<const std::string_view> names);

}  // namespace perseus
