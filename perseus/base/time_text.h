// Times since 1970-01-01 00:00 UTC as text (RFC 3339).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/units.h"

namespace perseus {

// "2026-11-30T20:00:00.000Z".
std::string TimeText(Milliseconds time);
// Reads a text of TimeText. Returns nullopt for every other text.
std::optional<Milliseconds> ParseTime(std::string_view text);

}  // namespace perseus
