// Small random planning problems, drawn to be awkward: ties, twins, fixed instructions, delays.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/planning/frontier/network.h"

namespace perseus {

// How what waits for what is drawn.
enum class Shape {
  kAnyOrder,        // Any earlier instruction may be waited for.
  kLayered,         // Those of the layer before.
  kSeriesParallel,  // Nested chains and forks.
  kPipeline,        // 1F1B: the instructions of a stage and kind share a curve.
};
inline constexpr Shape kShapes[] = {Shape::kAnyOrder, Shape::kLayered, Shape::kSeriesParallel,
                                    Shape::kPipeline};

// How times and slopes are drawn.
enum class Scale {
  kTies,      // 1 to 4 of each, so that most are equal.
  kMixed,     // Up to a thousand.
  kMeasured,  // Fractions of a second in nanoseconds, hundreds of watts in microwatts.
};
inline constexpr Scale kScales[] = {Scale::kTies, Scale::kMixed, Scale::kMeasured};

// Up to about 40 instructions. Some curves have a single vertex, some dependencies have a delay,
// some are stated twice. The same seed gives the same problem everywhere.
frontier::Network RandomNetwork(Shape shape, Scale scale, std::uint64_t seed);

// Shape and scale follow from the seed as well; any twelve seeds in a row have all of them.
frontier::Network RandomNetwork(std::uint64_t seed);

}  // namespace perseus
