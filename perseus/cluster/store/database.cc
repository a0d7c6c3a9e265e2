#include "perseus/cluster/store/database.h"

#include "perseus/base/excerpt.h"

namespace perseus::store {
namespace {

// Both databases limit a message to 1 GB, with everything that it contains.
constexpr std::size_t kMaxTextBytes = 500'000'000;

// The bytes of the UTF-8 character at `position`; 0 if there is none (RFC 3629).
std::size_t CharacterLength(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() - position < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_surrogate = first == 0xED && second >= 0xA0;
  const bool is_beyond = first == 0xF4 && second >= 0x90;
  return is_overlong || is_surrogate || is_beyond ? 0 : length;
}

// Where the first byte stands that is not UTF-8; npos if all is.
std::size_t FindNotUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = CharacterLength(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace

Result<void> CheckParameters(Parameters parameters) {
  for (const Parameter& parameter : parameters) {
    const auto* text = std::get_if<std::string_view>(&parameter);
    if (text == nullptr || text->empty()) continue;
    if (text->size() > kMaxTextBytes) {
      return Fail("the text has {} bytes, which is too long to store (send at most {})",
                  text->size(), kMaxTextBytes);
    }
    const auto excerpt_at = [&](std::size_t byte) {
      return Excerpt(text->substr(byte < 10 ? 0 : byte - 10, 20));
    };
    if (const std::size_t nul = text->find('\0'); nul != std::string_view::npos) {
      return Fail("byte {} of the text is NUL, near {} (remove it)", nul + 1, excerpt_at(nul));
    }
    if (const std::size_t bad = FindNotUtf8(*text); bad != std::string_view::npos) {
      return Fail("byte {} of the text is not UTF-8, near {} (encode the text as UTF-8)", bad + 1,
                  excerpt_at(bad));
    }
  }
  return {};
}

}  // namespace perseus::store
