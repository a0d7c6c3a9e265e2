// How many random cases a property test tries.
#pragma once

#include <cstdint>

namespace perseus {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

#if defined(PERSEUS_FEW_CASES)
inline constexpr bool kHasFewCases = true;
#else
inline constexpr bool kHasFewCases = kIsSanitized;
#endif

// Returns `count`, or a twentieth of `count` under a sanitizer and in the dev preset. A sanitizer
// makes the planner about 20 times slower. It looks for other errors than a property test, and a
// few cases reach the same code. In the dev preset, tests run after each edit.
constexpr std::uint64_t Seeds(std::uint64_t count) {
  return kHasFewCases ? (count + 19) / 20 : count;
}

}  // namespace perseus
