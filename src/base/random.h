// Random numbers that are the same on every machine: std::mt19937_64 is specified, the standard
// library's distributions are not.
#pragma once

#include <random>

namespace perseus {

// Uniform in [0, 1), in exact arithmetic.
inline double Uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// A standard normal sample, nearly (Irwin-Hall): the sum of twelve uniform ones has variance 1 and
// never leaves +-6. Additions alone, so every machine draws the same.
inline double Normal(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform(random);
  return sum;
}

}  // namespace perseus
