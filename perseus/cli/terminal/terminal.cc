#include "perseus/cli/terminal/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"

namespace perseus::cli {
namespace {

constexpr int kUsualWidth = 80;

struct CharacterRange {
  char32_t first;
  char32_t last;
};
// The ranges are generous. If a character is narrower than assumed, it leaves a blank. If it were
// wider, the line would wrap.
constexpr CharacterRange kTwoColumns[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23F3},   {0x25FD, 0x25FE}, {0x2614, 0x2615},
    {0x2630, 0x2637},   {0x2648, 0x2653},   {0x267F, 0x267F},   {0x268A, 0x268F}, {0x2693, 0x2693},
    {0x26A1, 0x26A1},   {0x26AA, 0x26AB},   {0x26BD, 0x26C5},   {0x26CE, 0x26D4}, {0x26EA, 0x26FD},
    {0x2705, 0x2705},   {0x270A, 0x270B},   {0x2728, 0x2728},   {0x274C, 0x2757}, {0x2795, 0x2797},
    {0x27B0, 0x27BF},   {0x2B1B, 0x2B1C},   {0x2B50, 0x2B55},   {0x2E80, 0xA4CF}, {0xA960, 0xA97F},
    {0xAC00, 0xD7FF},   {0xF900, 0xFAFF},   {0xFE10, 0xFE6F},   {0xFF01, 0xFF60}, {0xFFE0, 0xFFE6},
    {0x16FE0, 0x1B2FF}, {0x1F000, 0x1FAFF}, {0x20000, 0x3FFFD},
};
// Combining marks of alphabets, and characters that are not visible. Combining marks of other
// scripts may count as a column.
constexpr CharacterRange kNoColumn[] = {
    {0x00AD, 0x00AD},   {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05C7}, {0x0600, 0x061C},
    {0x064B, 0x065F},   {0x180E, 0x180E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},
    {0x2028, 0x202E},   {0x2060, 0x206F}, {0x20D0, 0x20FF}, {0x302A, 0x302D}, {0x3099, 0x309A},
    {0xFE00, 0xFE0F},   {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0x1F3FB, 0x1F3FF},
    {0xE0000, 0xE0FFF},
};

template <std::size_t kCount>
bool IsIn(const CharacterRange (&ranges)[kCount], char32_t character) {
  return std::ranges::any_of(ranges, [&](const CharacterRange& range) {
    return character >= range.first && character <= range.last;
  });
}

// Removes the first character from `text` and returns it, or '?' if it cannot be shown. Requires a
// text that is not empty.
char32_t TakeCharacter(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const std::string_view bytes = text.substr(0, length);
  if (!IsPrintable(bytes)) {
    text.remove_prefix(1);
    return U'?';
  }
  text.remove_prefix(length);
  char32_t character = length == 1 ? first : first & (0x7FU >> length);
  for (const char byte : bytes.substr(1)) {
    character = character << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  return IsIn(kNoColumn, character) ? U'?' : character;
}

void AppendUtf8(char32_t character, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xC0 | character >> 6);
    add(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    add(0xE0 | character >> 12);
    add(0x80 | (character >> 6 & 0x3F));
    add(0x80 | (character & 0x3F));
  } else {
    add(0xF0 | character >> 18);
    add(0x80 | (character >> 12 & 0x3F));
    add(0x80 | (character >> 6 & 0x3F));
    add(0x80 | (character & 0x3F));
  }
}

std::string_view ValueOf(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string_view() : value;
}

bool NamesUtf8(std::string_view locale) {
  std::string letters;  // "UTF-8" and "utf8" are both in use.
  for (const char c : locale) {
    if (c != '-') letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters.find("utf8") != std::string::npos;
}

}  // namespace

Terminal DescribeTerminal(const OutputDevice& output, const Environment& environment) {
  Terminal terminal;
  int width = output.columns;
  if (width <= 0) {
    width = ParseNumber<int>(ValueOf(environment, "COLUMNS")).value_or(0);
    if (width <= 0) width = kUsualWidth;
  }
  terminal.width = std::clamp(width, kNarrowest, kWidest);

  const std::string_view kind = ValueOf(environment, "TERM");
  terminal.color = output.is_terminal && !kind.empty() && kind != "dumb" &&
                   ValueOf(environment, "NO_COLOR").empty();

  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = ValueOf(environment, name);
    if (locale.empty()) continue;
    terminal.unicode = NamesUtf8(locale);
    break;
  }
  return terminal;
}

Terminal DetectTerminal(const Streams& streams) {
  OutputDevice output;
  output.is_terminal = ::isatty(::fileno(streams.out)) == 1;
  ::winsize size{};
  if (::ioctl(::fileno(streams.out), TIOCGWINSZ, &size) == 0) output.columns = size.ws_col;
  return DescribeTerminal(output, [](const char* name) { return std::getenv(name); });
}

std::u32string FitColumns(std::string_view text, int columns, const Terminal& terminal) {
  const std::u32string ellipsis = terminal.unicode ? U"…" : U"..";
  const auto room = static_cast<std::size_t>(std::max(columns, 0));
  std::u32string shown;
  std::size_t kept = 0;  // The longest beginning of `shown` that leaves room for the ellipsis.
  while (!text.empty() && shown.size() <= room) {
    if (shown.size() + ellipsis.size() <= room) kept = shown.size();
    char32_t character = TakeCharacter(text);
    if (character >= 0x80 && !terminal.unicode) character = U'?';
    shown += character;
    if (IsIn(kTwoColumns, character)) shown += kSecondColumn;
  }
  if (shown.size() <= room) return shown;
  shown.resize(kept);
  return (shown + ellipsis).substr(0, room);
}

CharacterGrid::CharacterGrid(int rows, int columns)
    : columns_(columns),
      cells_(static_cast<std::size_t>(rows), std::vector<Cell>(static_cast<std::size_t>(columns))) {
}

void CharacterGrid::Put(int row, int column, char32_t character, Color color) {
  if (row < 0 || row >= rows() || column < 0 || column >= columns_) return;
  cells_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = {character, color};
}

void CharacterGrid::Put(int row, int column, std::u32string_view text, Color color) {
  for (const char32_t character : text) Put(row, column++, character, color);
}

bool CharacterGrid::IsBlank(int row, int column, int columns) const {
  if (row < 0 || row >= rows() || column < 0 || column + columns > columns_) return false;
  const auto first = cells_[static_cast<std::size_t>(row)].begin() + column;
  return std::all_of(first, first + columns,
                     [](const Cell& cell) { return cell.character == U' '; });
}

std::string CharacterGrid::Format(const Terminal& terminal) const {
  std::string text;
  for (const std::vector<Cell>& row : cells_) {
    const auto end = std::find_if(row.rbegin(), row.rend(), [](const Cell& cell) {
                       return cell.character != U' ';
                     }).base();
    Color color = Color::kDefault;
    const auto change_to = [&](Color next) {
      if (terminal.color && next != color) {
        text += fmt::format("\x1b[{}m", static_cast<int>(next));
      }
      color = next;
    };
    for (auto cell = row.begin(); cell != end; ++cell) {
      if (cell->character == kSecondColumn) continue;
      change_to(cell->color);
      AppendUtf8(cell->character, text);
    }
    change_to(Color::kDefault);
    text += '\n';
  }
  return text;
}

}  // namespace perseus::cli
