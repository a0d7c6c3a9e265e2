// A type for whole numbers of one unit. A quantity does not mix with another quantity or with a
// plain integer (such as Nanoseconds). The type is as small and as fast as an integer.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <limits>

namespace perseus {

// `Unit` only tells the types apart.
template <typename Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  // An int, such as the literal 2'000, converts implicitly. Nanoseconds are a longer type and do
  // not.
  template <std::same_as<int> Int>
  constexpr Quantity(Int count) : count_(count) {}
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  static constexpr Quantity Max() { return Quantity(std::numeric_limits<std::int64_t>::max()); }

  constexpr std::int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;

  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count_ -= other.count_;
    return *this;
  }
  constexpr Quantity operator-() const { return Quantity(-count_); }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator/(Quantity a, std::same_as<int> auto b) {
    return Quantity(a.count_ / b);
  }
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.count_ / b.count_; }

  // A failed check of GoogleTest shows the count.
  template <typename Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                                      Quantity quantity) {
    return out << quantity.count_;
  }

 private:
  std::int64_t count_ = 0;
};

}  // namespace perseus
