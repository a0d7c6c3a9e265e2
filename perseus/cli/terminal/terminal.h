// The abilities of a terminal, and a grid of characters in its columns. Each character is one
// column wide. The lines of a grid never wrap.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

struct Terminal {
  int width = 80;        // Columns, from kNarrowest to kWidest.
  bool color = false;    // ANSI escapes.
  bool unicode = false;  // UTF-8. Otherwise only ASCII.
};
inline constexpr int kNarrowest = 40;
inline constexpr int kWidest = 160;

// The device to which standard output is connected.
struct OutputDevice {
  bool is_terminal = false;
  int columns = 0;  // 0 if unknown.
};
// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Determines the abilities:
//   width    that of the device, or else COLUMNS, or else 80; clamped to the range above
//   color    if the device is a terminal, TERM is not "dumb", and NO_COLOR is not set or is empty
//            (https://no-color.org)
//   unicode  if the first nonempty one of LC_ALL, LC_CTYPE and LANG names UTF-8
Terminal DescribeTerminal(const OutputDevice& output, const Environment& environment);
// The same for `streams.out` and the environment of this process.
Terminal DetectTerminal(const Streams& streams);

// The values are the numbers of ANSI escapes.
enum class Color : std::uint8_t {
  kDefault = 0,
  kRed = 31,
  kGreen = 32,
};

class CharacterGrid {
 public:
  // Creates a blank grid.
  CharacterGrid(int rows, int columns);

  int rows() const { return static_cast<int>(cells_.size()); }
  int columns() const { return columns_; }

  // Characters outside the grid are ignored.
  void Put(int row, int column, char32_t character, Color color = Color::kDefault);
  void Put(int row, int column, std::u32string_view text, Color color = Color::kDefault);
  // The text is in ASCII.
  void Put(int row, int column, std::string_view text, Color color = Color::kDefault);
  // Whether all of these cells are in the grid and blank.
  bool IsBlank(int row, int column, int columns) const;

  // Returns a line for each row, without blanks at its end.
  std::string Format(const Terminal& terminal) const;

 private:
  struct Cell {
    char32_t character = U' ';
    Color color = Color::kDefault;
  };

  int columns_;
  std::vector<std::vector<Cell>> cells_;  // [row][column]
};

}  // namespace perseus::cli
