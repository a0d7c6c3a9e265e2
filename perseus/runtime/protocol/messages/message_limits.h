// What the writer and the reader of the messages share. Only for .cc files of this module.
#pragma once

#include <array>
#include <string_view>

#include "perseus/base/units.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::protocol {

inline constexpr int kProtocolVersion = 1;

struct Range {
  double least = 0;
  double most = 0;
};
inline constexpr Range kHeartbeatSeconds = {1, 3600};
inline constexpr Range kSlowdown = {1, 100};
inline constexpr Range kHeldSeconds = {0, 1e10};
inline constexpr Range kClockMhz = {0, kHighestFrequencyMhz};
inline constexpr Range kPowerWatts = {0, 1e6};
inline constexpr int kHighestIndex = 65'535;
inline constexpr Range kChangesPerSecond = {0, kMostChangesPerSecond};
inline constexpr Range kTemperatureCelsius = {-300, 1000};

// In the order of Refusal.
inline constexpr std::array<std::string_view, 6> kRefusalNames = {
    "malformed", "held", "not-allowed", "no-such-gpu", "no-such-lease", "unavailable"};

}  // namespace perseus::protocol
