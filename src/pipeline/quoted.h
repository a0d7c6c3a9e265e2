// How text from an input appears in a message: in quotes, on one line, not too long.
#pragma once

#include <string>
#include <string_view>

namespace perseus {

inline std::string Quoted(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string quoted = "\"";
  for (char character : text.substr(0, kLongest)) {
    const bool control = static_cast<unsigned char>(character) < 0x20 || character == 0x7f;
    quoted += control ? '?' : character;
  }
  quoted += text.size() > kLongest ? "...\"" : "\"";
  return quoted;
}

}  // namespace perseus
