#include "perseus/planning/few_switches/price_ascent.h"

#include <algorithm>

namespace perseus::few_switches {
namespace {

constexpr int kLatest = 16;  // How many steps latest() keeps.
// The least share of an arc at the start. A share of 0 would stay 0.
constexpr double kLeastShare = 1e-5;
// The weight of the latest durations in the moving average.
constexpr double kNewShare = 0.15;
// Factors of the step size after a step that raised the bound, and after a step that did not.
constexpr double kGrowth = 1.3;
constexpr double kDecay = 0.85;
// Sets the first step size. If a path is longer than the average path by kTypicalExcess of the
// deadline, the first step multiplies its flow by about exp(kFirstChange).
constexpr double kFirstChange = 0.5;
constexpr double kTypicalExcess = 0.003;

// An increasing function that is close to exp(x) near 0, positive everywhere, and exactly the same
// on every machine: (1 + x/64)^64, with x limited to [-32, 32].
double Exponential(double x) {
  double power = 1 + std::clamp(x, -32.0, 32.0) / 64;
  for (int doubling = 0; doubling < 6; ++doubling) power *= power;
  return power;
}

// The highest price, in microwatts. It is far above the price of any real second, and fits into 64
// bits. Without this limit, the price would rise forever if no plan can meet the deadline.
constexpr double kMostPrice = 1e18;

}  // namespace

PriceAscent::PriceAscent(SwitchBound& bound, const Prices& start)
    : bound_(bound),
      network_(bound.planner().network()),
      order_(frontier::ArcsInOrder(network_)),
      last_out_(At(network_.nodes), -1),
      delays_(network_.arcs.size(), 0),
      best_prices_(start) {
  std::vector<double> through(At(network_.nodes), 0);
  std::vector<double> arcs_out(At(network_.nodes), 0);
  for (const std::int32_t a : order_) {
    const frontier::Arc& arc = network_.arcs[At(a)];
    last_out_[At(arc.tail)] = a;
    through[At(arc.tail)] += static_cast<double>(start.flow[At(a)].count());
    arcs_out[At(arc.tail)] += 1;
    if (a >= network_.instructions) {
      delays_[At(a)] = static_cast<double>(network_.curve_of(arc).fastest());
    }
  }
  flow_.value = static_cast<double>(start.price.count());
  flow_.shares.assign(network_.arcs.size(), 0);
  for (std::size_t a = 0; a < network_.arcs.size(); ++a) {
    const std::size_t tail = At(network_.arcs[a].tail);
    const double share = through[tail] > 0
                             ? static_cast<double>(start.flow[a].count()) / through[tail]
                             : 1 / arcs_out[tail];
    flow_.shares[a] = (1 - kLeastShare) * share + kLeastShare / arcs_out[tail];
  }
}

Prices PriceAscent::RoundToPrices(const PathFlow& flow) const {
  const auto part_of = [](Microwatts whole, double share) {
    return Microwatts(static_cast<std::int64_t>(share * static_cast<double>(whole.count())));
  };
  Prices prices;
  prices.price = std::max(bound_.least_price(), Microwatts(static_cast<std::int64_t>(flow.value)));
  prices.flow.assign(network_.arcs.size(), 0);
  std::vector<Microwatts> through(At(network_.nodes), 0);
  std::vector<Microwatts> left(At(network_.nodes), 0);
  through[At(network_.source)] = left[At(network_.source)] = prices.price;
  for (const std::int32_t a : order_) {
    const frontier::Arc& arc = network_.arcs[At(a)];
    Microwatts& rest = left[At(arc.tail)];
    // The last arc takes what remains after rounding, so that the flow is conserved exactly.
    const Microwatts part =
        last_out_[At(arc.tail)] == a
            ? rest
            : std::min(rest, part_of(through[At(arc.tail)], flow.shares[At(a)]));
    rest -= part;
    prices.flow[At(a)] = part;
    through[At(arc.head)] += part;
    left[At(arc.head)] += part;
  }
  return prices;
}

PathFlow PriceAscent::Step(const PathFlow& from, double eta) const {
  const auto duration = [&](std::int32_t a) {
    return a < network_.instructions ? durations_[At(a)] : delays_[At(a)];
  };
  // The mean length of the paths from each node to the sink. The exponents below are relative to
  // this mean, so that they stay small.
  std::vector<double> mean(At(network_.nodes), 0);
  for (std::size_t i = order_.size(); i-- > 0;) {
    const frontier::Arc& arc = network_.arcs[At(order_[i])];
    mean[At(arc.tail)] += from.shares[At(order_[i])] * (duration(order_[i]) + mean[At(arc.head)]);
  }
  PathFlow next = from;
  std::vector<double> total(At(network_.nodes), 0);
  total[At(network_.sink)] = 1;
  for (std::size_t i = order_.size(); i-- > 0;) {
    const std::int32_t a = order_[i];
    const frontier::Arc& arc = network_.arcs[At(a)];
    const double excess = duration(a) + mean[At(arc.head)] - mean[At(arc.tail)];
    next.shares[At(a)] *= Exponential(eta * excess) * total[At(arc.head)];
    total[At(arc.tail)] += next.shares[At(a)];
  }
  for (const std::int32_t a : order_) {
    // No share becomes 0, because a share of 0 could never grow again.
    const std::size_t tail = At(network_.arcs[At(a)].tail);
    next.shares[At(a)] = std::max(next.shares[At(a)] / total[tail], 1e-12);
  }
  const std::size_t source = At(network_.source);
  const double late = mean[source] - static_cast<double>(bound_.deadline());
  next.value = std::clamp(from.value * total[source] * Exponential(eta * late),
                          static_cast<double>(bound_.least_price().count()), kMostPrice);
  return next;
}

std::vector<double> PriceAscent::DurationsOf(const SwitchBound::Answer& answer) const {
  const schedule::InstructionGraph& graph = bound_.planner().graph();
  std::vector<double> durations;
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    durations.push_back(
        static_cast<double>(graph.options_of(static_cast<int>(i)).options.front().time));
  }
  for (std::size_t r = 0; r < answer.clocks.size(); ++r) {
    const RankClocks& rank = bound_.ranks()[r];
    const std::vector<int>& clocks = answer.clocks[r];
    for (std::size_t p = 0; p < clocks.size(); ++p) {
      durations[At(rank.instructions[p])] =
          static_cast<double>(rank.times[rank.Cell(static_cast<int>(p), clocks[p])]);
    }
    for (const int p : answer.stalls[r]) {
      durations[At(rank.instructions[At(p)])] +=
          static_cast<double>(bound_.planner().model().switch_cost.stall);
    }
  }
  return durations;
}

void PriceAscent::Climb(int changes, const Effort& effort) {
  using Windows = SwitchBound::Windows;
  best_ = bound_.Solve(best_prices_, changes);
  latest_.clear();
  if (!best_.exists) return;
  durations_ = DurationsOf(best_);
  Ascend(changes, effort.steps, Windows::kIgnore);
  if (effort.window_steps == 0 || !bound_.has_windows()) return;
  SwitchBound::Answer first = bound_.Solve(best_prices_, changes, Windows::kKeep);
  const std::int64_t work = effort.window_work - first.work;
  durations_ = DurationsOf(first);
  if (first.bound > best_.bound) best_ = std::move(first);
  Ascend(changes, effort.window_steps, Windows::kKeep, work);
}

void PriceAscent::Ascend(int changes, int steps, SwitchBound::Windows windows, std::int64_t work) {
  const auto deadline = static_cast<double>(std::max<Nanoseconds>(bound_.deadline(), 1));
  double eta = kFirstChange / (kTypicalExcess * deadline);
  for (int step = 0; step < steps && work > 0; ++step) {
    const PathFlow tried = Step(flow_, eta);
    Prices prices = RoundToPrices(tried);
    SwitchBound::Answer answer = bound_.Solve(prices, changes, windows);
    work -= answer.work;
    const std::vector<double> newest = DurationsOf(answer);
    for (std::size_t i = 0; i < durations_.size(); ++i) {
      durations_[i] += kNewShare * (newest[i] - durations_[i]);
    }
    if (windows == SwitchBound::Windows::kIgnore && steps - step <= kLatest) {
      latest_.push_back(answer.clocks);
    }
    if (answer.bound > best_.bound) {
      best_ = std::move(answer);
      best_prices_ = std::move(prices);
      flow_ = tried;
      eta *= kGrowth;
    } else {
      eta *= kDecay;
    }
  }
}

}  // namespace perseus::few_switches
