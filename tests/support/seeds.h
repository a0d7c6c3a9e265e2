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

// `count`, or a twentieth of it under a sanitizer. A sanitizer makes the planner about 20 times
// slower, and looks for other errors than a property test: a few cases reach the same code.
constexpr std::uint64_t Seeds(std::uint64_t count) {
  return kIsSanitized ? (count + 19) / 20 : count;
}

}  // namespace perseus
