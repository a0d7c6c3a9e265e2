#include "perseus/base/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <type_traits>

namespace perseus {
namespace {

template <typename A, typename B>
constexpr bool kMix =
    std::is_convertible_v<A, B> || std::is_convertible_v<B, A> || std::is_assignable_v<A&, B> ||
    std::is_assignable_v<B&, A> || std::is_invocable_v<std::plus<>, A, B> ||
    std::is_invocable_v<std::minus<>, A, B> || std::is_invocable_v<std::divides<>, A, B> ||
    std::is_invocable_v<std::equal_to<>, A, B> || std::is_invocable_v<std::less<>, A, B>;

static_assert(!kMix<Milliseconds, Nanoseconds>);
static_assert(!kMix<Milliseconds, double>);
static_assert(!kMix<Microwatts, Nanoseconds>);
static_assert(!kMix<Microwatts, Milliseconds>);
static_assert(!kMix<Microwatts, Femtojoules>);
static_assert(!std::is_invocable_v<std::multiplies<>, Microwatts, Milliseconds>);
static_assert(std::is_convertible_v<int, Milliseconds>);
static_assert(std::is_trivially_copyable_v<Milliseconds>);
static_assert(sizeof(Milliseconds) == sizeof(std::int64_t));

TEST(Milliseconds, AreALiteralOrAConvertedTime) {
  const Milliseconds minute = 60'000;
  EXPECT_EQ(ToSeconds(minute), 60);
  EXPECT_EQ(minute, FromSeconds(60));
  EXPECT_EQ(minute, WholeMilliseconds(60 * kSecond + kMillisecond - 1));
  EXPECT_EQ((minute - 1'000) / 2, 29'500);
  EXPECT_EQ(minute / Milliseconds(250), 240);
  EXPECT_LT(-minute, 0);
}

TEST(Microwatts, TimesATimeAreAnEnergy) {
  EXPECT_EQ(ToJoules(FromWatts(2.5) * (4 * kSecond)), 10);
  EXPECT_GT(ToJoules(Microwatts::Max() * kSecond), 9e12) << "with 128 bits";
  EXPECT_EQ(FromWatts(0.0000019), 1);
  EXPECT_EQ(FromWatts(-0.0000019), -2);
}

}  // namespace
}  // namespace perseus
