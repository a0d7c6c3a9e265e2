// Units, and the conversion of measured real numbers to exact integers.
//
// Files and reports have seconds, joules and watts as doubles. The planner compares only integers:
// times in nanoseconds and prices of time in microwatts, so price * time is in femtojoules. This
// makes results exact and the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>

#include "perseus/base/quantity.h"

namespace perseus {

using Nanoseconds = std::int64_t;
inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

// The times of servers and their databases.
using Milliseconds = Quantity<struct MillisecondsUnit>;

using Microwatts = Quantity<struct MicrowattsUnit>;
// A sum of price * time. It has 128 bits because a megajoule is 10^21 fJ.
__extension__ using Femtojoules = __int128;
constexpr Femtojoules operator*(Microwatts power, Nanoseconds time) {
  return Femtojoules{power.count()} * time;
}

inline constexpr double kNanosecondsPerSecond = 1e9;
inline constexpr std::int64_t kMillisecondsPerSecond = 1'000;
inline constexpr std::int64_t kMillisecondsPerDay = 86'400'000;
inline constexpr double kMicrowattsPerWatt = 1e6;
inline constexpr std::int64_t kMicrowattsPerMilliwatt = 1'000;
inline constexpr double kMilliwattsPerWatt = 1e3;
inline constexpr double kMillijoulesPerJoule = 1e3;
inline constexpr double kMicrojoulesPerJoule = 1e6;
inline constexpr double kFemtojoulesPerJoule = 1e15;
inline constexpr std::int64_t kHertzPerMegahertz = 1'000'000;

// These two functions round to the nearest nanosecond. The absolute value of the argument must be
// at most kLongestSeconds (limits.h).
inline Nanoseconds ToNanoseconds(double seconds) {
  return static_cast<Nanoseconds>(std::llround(seconds * kNanosecondsPerSecond));
}
inline Nanoseconds FromMilliseconds(double milliseconds) {
  return static_cast<Nanoseconds>(std::llround(milliseconds * static_cast<double>(kMillisecond)));
}
inline double ToSeconds(Nanoseconds time) {
  return static_cast<double>(time) / kNanosecondsPerSecond;
}
// These three functions round towards zero.
constexpr Milliseconds WholeMilliseconds(Nanoseconds time) {
  return Milliseconds(time / kMillisecond);
}
constexpr Milliseconds FromSeconds(double seconds) {
  return Milliseconds(static_cast<std::int64_t>(seconds * kMillisecondsPerSecond));
}
constexpr Milliseconds FromDays(double days) {
  return Milliseconds(static_cast<std::int64_t>(days * kMillisecondsPerDay));
}
constexpr double ToSeconds(Milliseconds time) {
  return static_cast<double>(time.count()) / kMillisecondsPerSecond;
}
inline double ToMilliseconds(Nanoseconds time) {
  return static_cast<double>(time) / static_cast<double>(kMillisecond);
}
// Rounds down, so that a lower bound stays a lower bound.
inline Microwatts FromWatts(double watts) {
  return Microwatts(static_cast<std::int64_t>(std::floor(watts * kMicrowattsPerWatt)));
}
constexpr double ToWatts(Microwatts power) {
  return static_cast<double>(power.count()) / kMicrowattsPerWatt;
}
inline double ToJoules(Femtojoules energy) {
  return static_cast<double>(energy) / kFemtojoulesPerJoule;
}

}  // namespace perseus
