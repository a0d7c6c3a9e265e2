// Random numbers that are the same on every machine: std::mt19937_64 is specified, the standard
// library's distributions are not.
#pragma once

#include <cstdint>
#include <random>

namespace perseus {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 8 bytes of state where the Mersenne twister has
// 2,504, for generators that lie in shared memory or are made for a single number. Any seed does.
struct SplitMix64 {
  std::uint64_t state = 0;

  std::uint64_t operator()() {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
};

// Uniform in [0, 1), in exact arithmetic. `random`: std::mt19937_64 or SplitMix64.
template <typename Generator>
double Uniform(Generator& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// A standard normal sample, nearly (Irwin-Hall): the sum of twelve uniform ones has variance 1 and
// never leaves +-6. Additions alone, so every machine draws the same.
template <typename Generator>
double Normal(Generator& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform(random);
  return sum;
}

}  // namespace perseus
