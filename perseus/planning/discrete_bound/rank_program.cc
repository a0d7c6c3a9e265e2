#include "perseus/planning/discrete_bound/rank_program.h"

#include <algorithm>
#include <limits>

#include "perseus/base/index.h"

namespace perseus::discrete_bound {
namespace {

constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max();
// The maximum number of cells. With more cells, the results do not change measurably, because two
// labels are seldom in one cell.
constexpr Nanoseconds kMostCells = 1'024;
// Each further cap is this factor times the previous cap.
constexpr int kCapFactor = 64;

Nanoseconds Width(const Step& step) {
  return step.latest_end - step.choices.front().time - step.earliest_start;
}

// Sums are limited to this value, so that further sums fit 128 bits.
constexpr Femtojoules kTooLarge = Femtojoules{1} << 124;

// Adds price * (the time after `limit` + margin). No product exceeds 2^123, because a price has at
// most 59 bits and a time at most 61 bits (frontier/network.h).
Femtojoules AddCost(Femtojoules sum, Microwatts price, Nanoseconds time, Nanoseconds limit,
                    Nanoseconds margin) {
  const Nanoseconds beyond = std::max<Nanoseconds>(time - limit, 0);
  return std::min(sum + price.count() * (Femtojoules{beyond} + margin), kTooLarge);
}

// An upper limit of the cost of every path through the steps and of every product of the search.
Femtojoules LargestSum(std::span<const Step> steps) {
  Femtojoules sum = 0;
  Nanoseconds earliest_end = 0;  // The earliest end of the previous step.
  for (const Step& step : steps) {
    const Nanoseconds fastest = step.choices.front().time;
    const Nanoseconds latest_start = step.latest_end - fastest;
    const Nanoseconds margin = Width(step) + 1;
    Femtojoules costliest = 0;
    for (const Choice& choice : step.choices) {
      costliest = std::max(costliest, choice.reduced_cost);
    }
    sum = std::min(sum + costliest, kTooLarge);
    sum = AddCost(sum, step.wait_price, latest_start, earliest_end + step.delay, 2 * margin);
    earliest_end = step.earliest_start + fastest;
    for (const Penalty& late : step.late) {
      sum = AddCost(sum, late.price, latest_start, late.limit, margin);
    }
    for (const Penalty& early : step.early) {
      sum = AddCost(sum, early.price, early.limit, earliest_end, margin);
    }
  }
  return sum;
}

// One search with one cap. Times are relative to the earliest start of their step.
class CappedSearch {
 public:
  CappedSearch(std::span<const Step> steps, int unit_shift, std::int64_t cap,
               const ProgramLimits& limits, std::int64_t& work)
      : steps_(steps), unit_shift_(unit_shift), cap_(cap), limits_(limits), work_(work) {
    Nanoseconds widest = 0;
    for (const Step& step : steps) widest = std::max(widest, Width(step));
    while ((widest >> log_cell_) >= kMostCells) ++log_cell_;
  }

  // Returns whether the search was completed.
  bool Run() {
    Start();
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      if (work_ > limits_.work || limits_.stop.stop_requested()) return false;
      EnterStep(k);
      ExpandStep();
      labels_.swap(next_);
    }
    return true;
  }

  // The least cost, or kNothing if it is above the cap.
  std::int64_t least() const {
    return labels_.front().value == kNothing ? kNothing
                                             : std::max<std::int64_t>(labels_.front().value, 0);
  }

 private:
  struct Label {
    Nanoseconds time = kNothing;
    std::int64_t value = kNothing;
  };
  struct Way {
    Nanoseconds time = 0;
    std::int64_t cost = 0;
  };
  struct Kink {
    std::int64_t price = 0;
    Nanoseconds limit = 0;
  };

  std::int64_t Units(Femtojoules cost) const {
    return static_cast<std::int64_t>(cost >> unit_shift_);
  }

  void Start() {
    labels_.assign(At(Width(steps_.front()) >> log_cell_) + 1, Label{});
    labels_.front() = {0, 0};
  }

  std::vector<Kink> Kinks(const std::vector<Penalty>& penalties) const {
    std::vector<Kink> kinks;
    for (const Penalty& penalty : penalties) {
      kinks.push_back({Units(penalty.price.count()), penalty.limit - step_->earliest_start});
    }
    return kinks;
  }

  void EnterStep(std::size_t k) {
    step_ = &steps_[k];
    price_ = k == 0 ? 0 : Units(step_->wait_price.count());
    late_ = Kinks(step_->late);
    early_ = Kinks(step_->early);
    ways_.clear();
    for (const Choice& choice : step_->choices) {
      const std::int64_t cost = Units(choice.reduced_cost);
      if (cost <= cap_) ways_.push_back({choice.time, cost});
    }
    latest_end_ = step_->latest_end - step_->earliest_start;
    is_last_ = k + 1 == steps_.size();
    if (is_last_) {
      next_price_ = 0;
      next_.assign(1, Label{});
      return;
    }
    const Step& next = steps_[k + 1];
    next_price_ = Units(next.wait_price.count());
    to_next_ = step_->earliest_start + next.delay - next.earliest_start;
    next_.assign(At(Width(next) >> log_cell_) + 1, Label{});
  }

  void ExpandStep() {
    const Nanoseconds cell = Nanoseconds{1} << log_cell_;
    std::int64_t best = kNothing;
    for (std::size_t c = 0; c < labels_.size(); ++c) {
      const Nanoseconds begin = static_cast<Nanoseconds>(c) << log_cell_;
      if (best != kNothing) Expand(begin, begin + cell, best, /*is_label=*/false);
      if (labels_[c].value >= best) continue;
      best = labels_[c].value;
      Expand(labels_[c].time, begin + cell, best, /*is_label=*/true);
    }
  }

  // Runs the step with every choice, for starts from `begin` to `end`. A label also allows later
  // starts. But where slope >= 0, a later start is no better than an earlier one.
  void Expand(Nanoseconds begin, Nanoseconds end, std::int64_t value, bool is_label) {
    std::int64_t cost = value + price_ * begin;
    std::int64_t slope = price_ - next_price_;
    for (const Kink& late : late_) {
      if (begin < late.limit) continue;
      cost += (begin - late.limit) * late.price;
      slope += late.price;
    }
    for (const Way& way : ways_) {
      const Nanoseconds room = latest_end_ - way.time - begin;
      if (room < 0) return;
      ++work_;
      RunWay(way, begin, std::min(end - begin, room), {cost, slope, is_label});
    }
  }

  struct Begun {
    std::int64_t cost = 0;
    std::int64_t slope = 0;
    bool is_label = false;
  };

  void RunWay(const Way& way, Nanoseconds begin, Nanoseconds length, Begun begun) {
    std::int64_t cost = begun.cost + way.cost;
    std::int64_t slope = begun.slope;
    for (const Kink& early : early_) {
      const Nanoseconds under = early.limit - (begin + way.time);
      if (under <= 0) continue;
      cost += under * early.price;
      slope -= early.price;
    }
    if (!begun.is_label && slope >= 0) return;
    // The tangent of the cost without the next wait price, for a comparison with the cap.
    if (cost + std::min<std::int64_t>(slope + next_price_, 0) * length > cap_) return;
    if (is_last_) {
      Label& end = next_.front();
      end.value = std::min(end.value, cost + std::min<std::int64_t>(slope, 0) * length);
      end.time = 0;
      return;
    }
    const Nanoseconds at = begin + way.time + to_next_;
    const Nanoseconds start = std::max<Nanoseconds>(at, 0);
    Label& label = next_[At(start >> log_cell_)];
    label.time = std::min(label.time, start);
    label.value =
        std::min(label.value, cost - next_price_ * at + std::min<std::int64_t>(slope, 0) * length);
  }

  std::span<const Step> steps_;
  int unit_shift_;
  int log_cell_ = 0;
  std::int64_t cap_;
  const ProgramLimits& limits_;
  std::int64_t& work_;

  // The label of each cell. A label is useful only if its value is below all previous values.
  std::vector<Label> labels_;
  std::vector<Label> next_;

  // The present step.
  const Step* step_ = nullptr;
  bool is_last_ = false;
  std::int64_t price_ = 0;
  std::int64_t next_price_ = 0;
  Nanoseconds latest_end_ = 0;
  Nanoseconds to_next_ = 0;  // From the end of the step to the earliest start of the next one.
  std::vector<Way> ways_;
  std::vector<Kink> late_;
  std::vector<Kink> early_;
};

}  // namespace

LeastCost FindLeastCost(std::span<const Step> steps, const ProgramLimits& limits) {
  const Femtojoules largest = LargestSum(steps);
  // Only values that no device reaches make the sum this large.
  if (largest >= kTooLarge) return {.complete = true};
  int unit_shift = 0;
  constexpr Femtojoules kMostUnits = Femtojoules{1} << 60;
  while ((largest >> unit_shift) > kMostUnits) ++unit_shift;
  LeastCost result;
  // A cap at the largest sum drops nothing.
  Femtojoules cap = std::max<Femtojoules>(limits.first_cap >> unit_shift, 1);
  while (true) {
    cap = std::min(cap, kMostUnits);
    CappedSearch search(steps, unit_shift, static_cast<std::int64_t>(cap), limits, result.work);
    if (!search.Run()) return result;
    result.complete = true;
    if (search.least() != kNothing) {
      result.at_least = Femtojoules{search.least()} << unit_shift;
      return result;
    }
    result.complete = false;
    // The cost in units is above the cap, and rounding down did not raise this cost.
    result.at_least = cap << unit_shift;
    if (cap == kMostUnits) return result;  // Impossible: the fastest choices are a path.
    cap *= kCapFactor;
  }
}

}  // namespace perseus::discrete_bound
