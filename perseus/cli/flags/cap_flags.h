// Powers and times as people write them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "perseus/base/result.h"

namespace perseus::cli {

// Reads a power: "2MW", "250 kW", "1500 W" or "1500". Returns watts.
Result<double> ParsePower(std::string text);

// Reads a time after `now_s`: the next "20:00" on this machine's clock, "2026-11-30T20:00" (with a
// zone, such as Z or +01:00, or else on this machine's clock), or a duration such as "90m", "2h" or
// "1d". Returns the seconds since 1970. `now_s` counts in the same way.
Result<std::int64_t> ParseLaterTime(const std::string& text, std::int64_t now_s);

// Checks for flags. They replace the text by watts, and by seconds since 1970.
CLI::Validator Power();
CLI::Validator LaterTime();

}  // namespace perseus::cli
