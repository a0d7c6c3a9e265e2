// Compares the program of a pp_rank with a search over all choices and all starts in whole
// nanoseconds.
#include "perseus/planning/discrete_bound/rank_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include "perseus/base/index.h"
#include "tests/support/seeds.h"

namespace perseus::discrete_bound {
namespace {

constexpr std::int64_t kPlenty = 1'000'000'000;

// Returns the least cost from step k on, after a step that ended at `end`. nullopt if no choice
// fits.
std::optional<Femtojoules> SearchStarts(const std::vector<Step>& steps, std::size_t k,
                                        Nanoseconds end) {
  if (k == steps.size()) return Femtojoules{0};
  const Step& step = steps[k];
  const Nanoseconds first =
      k == 0 ? step.earliest_start : std::max(step.earliest_start, end + step.delay);
  std::optional<Femtojoules> best;
  for (const Choice& choice : step.choices) {
    for (Nanoseconds start = first; start + choice.time <= step.latest_end; ++start) {
      Femtojoules cost = choice.reduced_cost;
      if (k > 0) cost += step.wait_price * (start - end - step.delay);
      for (const Penalty& late : step.late) {
        cost += late.price * std::max<Nanoseconds>(start - late.limit, 0);
      }
      for (const Penalty& early : step.early) {
        cost += early.price * std::max<Nanoseconds>(early.limit - start - choice.time, 0);
      }
      if (const auto rest = SearchStarts(steps, k + 1, start + choice.time)) {
        if (!best || cost + *rest < *best) best = cost + *rest;
      }
    }
  }
  return best;
}

class DrawSteps {
 public:
  explicit DrawSteps(std::uint64_t seed) : random_(seed) {}

  // Draws up to four steps. The windows are computed from the fastest times.
  std::vector<Step> Draw() {
    std::vector<Step> steps(At(1 + Below(4)));
    Nanoseconds earliest = 0;
    for (std::size_t k = 0; k < steps.size(); ++k) {
      Step& step = steps[k];
      if (k > 0) step.delay = Below(3) == 0 ? Below(4) : 0;
      if (k > 0) step.wait_price = Below(20);
      step.earliest_start = earliest + step.delay + (Below(2) == 0 ? Below(5) : 0);
      Nanoseconds time = Below(6);
      const int choices = 1 + Below(3);
      for (int c = 0; c < choices; ++c) {
        step.choices.push_back({time, Below(3) == 0 ? 0 : Below(60)});
        time += 1 + Below(4);
      }
      earliest = step.earliest_start + step.choices.front().time;
    }
    Nanoseconds latest = earliest + Below(12);
    for (std::size_t k = steps.size(); k-- > 0;) {
      Step& step = steps[k];
      step.latest_end = latest - (Below(2) == 0 ? Below(3) : 0);
      step.latest_end = std::max(step.latest_end, step.earliest_start + step.choices.front().time);
      latest = step.latest_end - step.choices.front().time - step.delay;
      for (int p = Below(3); p > 0; --p) step.late.push_back(DrawPenalty(step));
      for (int p = Below(3); p > 0; --p) step.early.push_back(DrawPenalty(step));
    }
    return steps;
  }

  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }

 private:
  Penalty DrawPenalty(const Step& step) { return {Below(20), step.earliest_start - 5 + Below(30)}; }

  std::mt19937_64 random_;
};

// A tangent replaces a cost over one nanosecond. So for each step, the result is too low by at most
// its prices times 1 ns.
Femtojoules MostLoss(const std::vector<Step>& steps) {
  Femtojoules loss = 0;
  for (const Step& step : steps) {
    loss += step.wait_price * 1;
    for (const Penalty& penalty : step.late) loss += penalty.price * 1;
    for (const Penalty& penalty : step.early) loss += penalty.price * 1;
  }
  return 2 * loss;
}

TEST(RankProgram, FindsTheLeastCostOfRandomSteps) {
  int exact = 0;
  int positive = 0;
  for (std::uint64_t seed = 0; seed < Seeds(2'000); ++seed) {
    SCOPED_TRACE(seed);
    DrawSteps draw(seed);
    const std::vector<Step> steps = draw.Draw();
    const auto least = SearchStarts(steps, 0, 0);
    if (!least) continue;
    for (const int first_cap : {1, 7, 1'000'000}) {
      const LeastCost found = FindLeastCost(steps, {.first_cap = first_cap, .work = kPlenty});
      EXPECT_TRUE(found.complete);
      EXPECT_LE(static_cast<std::int64_t>(found.at_least), static_cast<std::int64_t>(*least));
      EXPECT_GE(static_cast<std::int64_t>(found.at_least + MostLoss(steps)),
                static_cast<std::int64_t>(*least));
      if (found.at_least == *least) ++exact;
      if (*least > 0) ++positive;
    }
  }
  // If no tangent is used, the result is exact.
  EXPECT_GT(positive, 0);
  EXPECT_GT(exact, positive / 4);
}

// With scaled times, several labels meet in one cell. With scaled costs, the unit is above 1 fJ.
TEST(RankProgram, StaysBelowTheLeastCostWithLargeNumbers) {
  for (std::uint64_t seed = 0; seed < Seeds(1'000); ++seed) {
    SCOPED_TRACE(seed);
    DrawSteps draw(seed);
    std::vector<Step> steps = draw.Draw();
    const auto least = SearchStarts(steps, 0, 0);
    if (!least) continue;
    const int log_time = draw.Below(45);
    const int log_price = draw.Below(50);
    const auto scaled = [&](Microwatts price) { return Microwatts(price.count() << log_price); };
    for (Step& step : steps) {
      step.earliest_start <<= log_time;
      step.latest_end <<= log_time;
      step.delay <<= log_time;
      step.wait_price = scaled(step.wait_price);
      for (Penalty& late : step.late) {
        late = {scaled(late.price), late.limit * (Nanoseconds{1} << log_time)};
      }
      for (Penalty& early : step.early) {
        early = {scaled(early.price), early.limit * (Nanoseconds{1} << log_time)};
      }
      for (Choice& choice : step.choices) {
        choice.time <<= log_time;
        choice.reduced_cost <<= log_time + log_price;
      }
    }
    // All costs are piecewise linear with breakpoints at whole multiples of the scale, so the least
    // cost scales, too.
    const LeastCost found = FindLeastCost(steps, {.first_cap = 1'000, .work = kPlenty});
    EXPECT_TRUE(found.at_least <= *least << (log_time + log_price));
  }
}

TEST(RankProgram, StaysBelowTheLeastCostWithLittleWork) {
  int incomplete = 0;
  for (std::uint64_t seed = 0; seed < Seeds(1'000); ++seed) {
    SCOPED_TRACE(seed);
    DrawSteps draw(seed);
    const std::vector<Step> steps = draw.Draw();
    const auto least = SearchStarts(steps, 0, 0);
    if (!least) continue;
    const LeastCost found = FindLeastCost(steps, {.first_cap = 1, .work = draw.Below(30)});
    EXPECT_TRUE(found.at_least <= *least);
    if (!found.complete) ++incomplete;
  }
  EXPECT_GT(incomplete, 0);
}

TEST(RankProgram, AStopRequestEndsTheSearch) {
  std::stop_source source;
  source.request_stop();
  const std::vector<Step> steps(1, Step{.latest_end = 10, .choices = {{10, 5}}});
  EXPECT_FALSE(
      FindLeastCost(steps, {.first_cap = 1, .work = kPlenty, .stop = source.get_token()}).complete);
}

// A late start and an early end both cost: the best start is inside the window.
//
//   start:  0 ......... 10 ......... 20       late: 3 for each ns after 12
//                        ^ 12 is best         early: 2 for each ns that the end is before 32
TEST(RankProgram, StartsWhereTheTwoPenaltiesMeet) {
  const std::vector<Step> steps{{.earliest_start = 0,
                                 .latest_end = 40,
                                 .late = {{3, 12}},
                                 .early = {{2, 32}},
                                 .choices = {{20, 7}}}};
  const LeastCost found = FindLeastCost(steps, {.first_cap = 1, .work = kPlenty});
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(static_cast<std::int64_t>(found.at_least), 7);
}

}  // namespace
}  // namespace perseus::discrete_bound
