#include "perseus/cluster/store/database.h"

#include <fmt/format.h>

#include "perseus/base/excerpt.h"
#include "perseus/base/utf8.h"

namespace perseus::store {
namespace {

// SQLite and PostgreSQL limit a message to 1 GB, with everything that the message contains.
constexpr std::size_t kMaxTextBytes = 500'000'000;

}  // namespace

tl::unexpected<Error> UnknownWord(std::string_view word, std::span<const std::string_view> known) {
  return FailAs(ErrorKind::kSystem,
                "{} in the database is none of {} (use the version of the program that wrote it)",
                Excerpt(word), fmt::join(known, ", "));
}

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
    if (const std::size_t bad = FindInvalidUtf8(*text); bad != std::string_view::npos) {
      return Fail("byte {} of the text is not UTF-8, near {} (encode the text as UTF-8)", bad + 1,
                  excerpt_at(bad));
    }
  }
  return {};
}

}  // namespace perseus::store
