// Random numbers that are the same on every machine. The C++ standard specifies the numbers of
// std::mt19937_64, but not those of its distributions, so the distributions here replace them.
#pragma once

#include <cstdint>
#include <random>

namespace perseus {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Its state has only 8 bytes (the state of the
// Mersenne twister has 2,504). So SplitMix64 suits a generator in shared memory, and a generator
// that is used for a single number. Any seed is good.
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

// A uniform sample of [0, 1), in exact arithmetic. `random` is a std::mt19937_64 or a SplitMix64.
template <typename Generator>
double Uniform(Generator& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// A uniform sample of 0, 1, ..., `end` - 1 (Lemire, "Fast random integer generation in an
// interval", 2019). The correction of that paper is left out, so the error is at most end / 2^32.
// Requires 1 <= end < 2^31.
template <typename Generator>
int Below(Generator& random, int end) {
  return static_cast<int>((random() >> 32) * static_cast<std::uint64_t>(end) >> 32);
}

// Approximately a standard normal sample (Irwin-Hall): the sum of twelve uniform samples has
// variance 1 and stays within +-6. It needs only additions, so every machine gets the same number.
template <typename Generator>
double Normal(Generator& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform(random);
  return sum;
}

}  // namespace perseus
