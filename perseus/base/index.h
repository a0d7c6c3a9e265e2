// Integers as indices: containers count in std::size_t, the rest of the code in int.
#pragma once

#include <concepts>
#include <cstddef>

namespace perseus {

// `values[At(i)]`. Requires i >= 0.
constexpr std::size_t At(std::integral auto i) { return static_cast<std::size_t>(i); }

}  // namespace perseus
