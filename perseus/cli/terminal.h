// What the terminal can show, and text laid out in its columns: a grid of characters, most of them
// one column wide, which becomes lines that never wrap.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace perseus::cli {

struct Terminal {
  int width = 80;        // Columns, from kNarrowest to kWidest.
  bool colour = false;   // ANSI escapes.
  bool unicode = false;  // UTF-8; else ASCII alone.
};
inline constexpr int kNarrowest = 40;
inline constexpr int kWidest = 160;

// What standard output is connected to.
struct OutputDevice {
  bool is_terminal = false;
  int columns = 0;  // 0 where it has none.
};
// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Width: the device's, else COLUMNS, else 80; clamped. Colour: on a terminal whose TERM is not
// "dumb", unless NO_COLOR is set (https://no-color.org: to anything but nothing). Unicode: where
// the first of LC_ALL, LC_CTYPE and LANG that is set names UTF-8.
Terminal DescribeTerminal(const OutputDevice& output, const Environment& environment);
// The same of this process's standard output and environment.
Terminal DetectTerminal();

// Numbered as ANSI does.
enum class Colour : std::uint8_t {
  kDefault = 0,
  kRed = 31,
  kGreen = 32,
  kYellow = 33,
  kMagenta = 35,
  kCyan = 36,
};

// `text` may be any bytes, and longer than any line: what is shown takes `columns` at most, cut
// with an ellipsis. What is not UTF-8 or takes no column of its own (controls, marks that combine,
// directions) becomes '?', and so does all but ASCII where the terminal shows no more. A character
// of two columns is followed by kSecondColumn, so that the length is the number of columns.
std::u32string FitColumns(std::string_view text, int columns, const Terminal& terminal);
inline constexpr char32_t kSecondColumn = 0;

class CharacterGrid {
 public:
  // All blank.
  CharacterGrid(int rows, int columns);

  int rows() const { return static_cast<int>(cells_.size()); }
  int columns() const { return columns_; }

  // What lies outside the grid is left out.
  void Put(int row, int column, char32_t character, Colour colour = Colour::kDefault);
  void Put(int row, int column, std::u32string_view text, Colour colour = Colour::kDefault);
  // Whether all of these cells are in the grid, with nothing in them.
  bool IsBlank(int row, int column, int columns) const;

  // A line for each row, without blanks at its end.
  std::string Format(const Terminal& terminal) const;

 private:
  struct Cell {
    char32_t character = U' ';
    Colour colour = Colour::kDefault;
  };

  int columns_;
  std::vector<std::vector<Cell>> cells_;  // [row][column]
};

}  // namespace perseus::cli
