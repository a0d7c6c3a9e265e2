#include "perseus/cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "perseus/base/number.h"

namespace perseus::cli {
namespace {

constexpr int kUsualWidth = 80;

std::string_view ValueOf(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string_view() : value;
}

bool NamesUtf8(std::string_view locale) {
  // The locale in lower case and without "-", because both "UTF-8" and "utf8" are in use.
  std::string letters;
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

}  // namespace perseus::cli
