// Small random planning problems with difficult cases: ties, shared curves, fixed instructions and
// delays.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/planning/frontier/network.h"

namespace perseus {

// How the dependencies are drawn.
enum class Shape {
  kAnyOrder,        // An instruction may wait for any earlier instruction.
  kLayered,         // An instruction may wait for instructions of the layer before.
  kSeriesParallel,  // Nested chains and forks.
  kPipeline,        // 1F1B: the instructions of a stage and kind share a curve.
};
inline constexpr Shape kShapes[] = {Shape::kAnyOrder, Shape::kLayered, Shape::kSeriesParallel,
                                    Shape::kPipeline};

// How times and slopes are drawn.
enum class Scale {
  kTies,      // From 1 to 4, so that most are equal.
  kMixed,     // Up to a thousand.
  kMeasured,  // Fractions of a second in nanoseconds, hundreds of watts in microwatts.
};
inline constexpr Scale kScales[] = {Scale::kTies, Scale::kMixed, Scale::kMeasured};

// Returns a problem of up to about 40 instructions. Some curves have a single vertex, some
// dependencies have a delay, and some dependencies occur twice. The same seed gives the same
// problem with every standard library.
frontier::Network RandomNetwork(Shape shape, Scale scale, std::uint64_t seed);

// The seed also chooses the shape and the scale. Any twelve consecutive seeds have all
// combinations.
frontier::Network RandomNetwork(std::uint64_t seed);

}  // namespace perseus
