// Converts integers to indices: containers count in std::size_t, and the rest of the code in int.
#pragma once

#include <concepts>
#include <cstddef>

namespace perseus {

// For `values[At(i)]`. Requires i >= 0.
constexpr std::size_t At(std::integral auto i) { return static_cast<std::size_t>(i); }

}  // namespace perseus
