#include "perseus/cli/terminal/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "perseus/base/number.h"

namespace perseus::cli {
namespace {

constexpr int kUsualWidth = 80;

// The character is in ASCII, or takes three bytes as all symbols of the plot do.
void AppendUtf8(char32_t character, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    add(character);
  } else {
    add(0xE0 | character >> 12);
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

void CharacterGrid::Put(int row, int column, std::string_view text, Color color) {
  for (const char character : text) Put(row, column++, static_cast<char32_t>(character), color);
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
      change_to(cell->color);
      AppendUtf8(cell->character, text);
    }
    change_to(Color::kDefault);
    text += '\n';
  }
  return text;
}

}  // namespace perseus::cli
