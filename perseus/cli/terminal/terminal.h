// Determines the abilities of a terminal.
#pragma once

#include <functional>

#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

struct Terminal {
  int width = 80;        // The width in columns, from kNarrowest to kWidest.
  bool color = false;    // Whether it understands ANSI escapes.
  bool unicode = false;  // Whether it shows UTF-8. Otherwise it shows only ASCII.
};
inline constexpr int kNarrowest = 40;
inline constexpr int kWidest = 160;

// The device to which standard output is connected.
struct OutputDevice {
  bool is_terminal = false;
  int columns = 0;  // 0 if unknown.
};
// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Determines the abilities:
//   width    that of the device, or else COLUMNS, or else 80; clamped to the range above
//   color    if the device is a terminal, TERM is not "dumb", and NO_COLOR is not set or is empty
//            (https://no-color.org)
//   unicode  if the first nonempty one of LC_ALL, LC_CTYPE and LANG names UTF-8
Terminal DescribeTerminal(const OutputDevice& output, const Environment& environment);
// The same for `streams.out` and the environment of this process.
Terminal DetectTerminal(const Streams& streams);

}  // namespace perseus::cli
