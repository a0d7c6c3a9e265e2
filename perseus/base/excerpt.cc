#include "perseus/base/excerpt.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "perseus/base/utf8.h"

namespace perseus {
namespace {

constexpr std::size_t kShownCharacters = 40;

// Whether the character shows nothing of its own, or can make one text look like another. These are
// control characters (C0, DEL, C1), line and paragraph separators, invisible characters, and
// characters that change the direction of text.
bool IsDeceptive(char32_t code) {
  struct Range {
    char32_t first;
    char32_t last;
  };
  static constexpr Range kRanges[] = {{0x0000, 0x001F}, {0x007F, 0x009F},  {0x00AD, 0x00AD},
                                      {0x061C, 0x061C}, {0x180E, 0x180E},  {0x200B, 0x200F},
                                      {0x2028, 0x202E}, {0x2060, 0x206F},  {0xFEFF, 0xFEFF},
                                      {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
  return std::ranges::any_of(
      kRanges, [code](const Range& range) { return code >= range.first && code <= range.last; });
}

// The number of bytes of the printable character that `text` begins with. 0 if `text` does not
// begin with one.
std::size_t PrintableLength(std::string_view text) {
  const std::size_t length = Utf8CharacterLength(text);
  return length == 0 || IsDeceptive(Utf8CodePoint(text, length)) ? 0 : length;
}

// Moves the first character of `text` to the end of `shown`, as it appears in a message.
void Show(std::string_view& text, std::string& shown) {
  const std::size_t length = PrintableLength(text);
  if (length == 0) {
    shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(text.front()));
  } else {
    shown += text.substr(0, length);
  }
  text.remove_prefix(std::max<std::size_t>(length, 1));
}

char Lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// The number of edits that turn `b` into `a`: insertions, deletions, replacements, and swaps of two
// neighbors (optimal string alignment). Capital and small letters are the same.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  const auto same = [](char one, char other) { return Lower(one) == Lower(other); };
  // The distances from a[0, i) to each b[0, j). Below: the same for i - 1 and for i - 2.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  std::vector<std::size_t> above;
  std::vector<std::size_t> above_that;
  for (std::size_t i = 0; i < a.size(); ++i) {
    above_that = std::exchange(above, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = above[j] + (same(a[i], b[j]) ? 0 : 1);
      row[j + 1] = std::min({replaced, row[j] + 1, above[j + 1] + 1});
      if (i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j])) {
        row[j + 1] = std::min(row[j + 1], above_that[j - 1] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace

std::string Excerpt(std::string_view text) {
  std::string shown = "\"";
  for (std::size_t count = 0; !text.empty(); ++count) {
    if (count == kShownCharacters) {
      shown += "...";
      break;
    }
    Show(text, shown);
  }
  return shown + '"';
}

std::string OneLine(std::string_view text) {
  std::string shown;
  while (!text.empty()) Show(text, shown);
  return shown;
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = PrintableLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string_view NearestName(std::string_view text, std::span<const std::string_view> names) {
  std::string_view nearest;
  std::size_t least = text.size();
  for (const std::string_view name : names) {
    if (text.size() > 2 * name.size()) continue;  // Not near, and may be megabytes long.
    const std::size_t distance = EditDistance(text, name);
    if (3 * distance <= name.size() && (nearest.empty() || distance < least)) {
      nearest = name;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace perseus
