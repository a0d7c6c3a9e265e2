#include "perseus/base/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "perseus/base/utf8.h"

namespace perseus {
namespace {

constexpr std::size_t kShownCharacters = 40;

// The bytes of the printable character that `text` begins with; 0 if it does not begin with one.
std::size_t PrintableLength(std::string_view text) {
  const std::size_t length = Utf8CharacterLength(text);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool is_ascii_control = length == 1 && (byte(0) < 0x20 || byte(0) == 0x7F);
  const bool is_control = length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0;  // U+0080 to U+009F.
  return is_ascii_control || is_control ? 0 : length;
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
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
    const std::size_t length = PrintableLength(text);
    if (length == 0) {
      shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(text.front()));
    } else {
      shown += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown + '"';
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
    if (text.size() > 2 * name.size()) continue;  // It cannot be near, and may be megabytes long.
    const std::size_t distance = EditDistance(text, name);
    if (3 * distance <= name.size() && (nearest.empty() || distance < least)) {
      nearest = name;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace perseus
