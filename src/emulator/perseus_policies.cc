// Perseus: ours, and as its authors' planner computes it.
//
// The published planner (Perseus, SOSP '24, section 4; the lowtime library) rounds times down to
// whole units, keeps one option for each, fits effective energy over time by a*exp(b*t) + c, and
// walks from the slowest schedule to the fastest, a unit at a time. The operations of a schedule
// then run at the slowest clock that is done in the time given. Here the walk is the exact one
// (frontier/walk.h) over the fitted curve at whole units: it does what theirs does, without the
// maximum flow from scratch at every step, so that what differs from ours is the rounding and the
// fit alone. Each schedule is evaluated on the measured options, like everybody's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/emulator/policy.h"
#include "perseus/frontier/walk.h"
#include "perseus/profile/curve.h"

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

class Perseus : public Policy {
 public:
  std::string_view name() const override { return "Perseus"; }
  Result<PolicyPoints> Points(const Planner& planner,
                              std::span<const Nanoseconds> deadlines) const override {
    std::vector<OperatingPoint> points;
    for (const Nanoseconds deadline : deadlines) {
      auto plan = planner.PlanFor(deadline);
      if (!plan) return Fail(plan);
      points.push_back(
          {fmt::format("within {} s", ToSeconds(deadline)), plan->options, plan->evaluation});
    }
    return PolicyPoints{Undominated(std::move(points)), ""};
  }
};

// An option set as the published planner sees it.
struct Quantised {
  std::vector<int> options;        // Of the profile, fastest first,
  std::vector<Nanoseconds> times;  // and their times, rounded down to units. Strictly rising.
  Curve curve;                     // The fit, with a vertex at every unit.

  // The slowest option that is done in that time.
  int OptionWithin(Nanoseconds time) const {
    const auto after = std::ranges::upper_bound(times, time);
    return options[At(static_cast<int>(after - times.begin()) - 1)];
  }
};

Result<Quantised> Quantise(const OptionSet& set, double blocking_power_w, Nanoseconds unit) {
  Quantised quantised;
  std::vector<Option> kept;
  for (const int index : ParetoFront(set.options, blocking_power_w)) {
    Option option = set.options[At(index)];
    if (set.options.size() > 1) option.time = option.time / unit * unit;
    if (option.time == 0) {
      return Fail("{}: takes less than the unit of {} s (say a smaller --unit)", set.name,
                  ToSeconds(unit));
    }
    // Of equal times the cheapest: the front falls, so the last.
    if (!kept.empty() && kept.back().time == option.time) {
      kept.back() = option;
      quantised.options.back() = index;
      continue;
    }
    kept.push_back(option);
    quantised.options.push_back(index);
    quantised.times.push_back(option.time);
  }
  Curve& curve = quantised.curve;
  curve.times.push_back(quantised.times.front());
  curve.options.push_back(quantised.options.front());
  if (kept.size() == 1) return quantised;
  const auto fit = FitExponential(kept, blocking_power_w);
  if (!fit) return Fail("{}: {} (say a smaller --unit)", set.name, fit.error().message);
  for (Nanoseconds time = curve.times.back(); time < quantised.times.back(); time += unit) {
    const double slope_w =
        (fit->At(ToSeconds(time)) - fit->At(ToSeconds(time + unit))) / ToSeconds(unit);
    const auto slope = static_cast<Microwatts>(std::floor(slope_w * kMicrowattsPerWatt));
    // Where the fit is flat to a microwatt, or a sum of doubles is not quite convex.
    if (slope <= 0 || (!curve.slopes.empty() && slope >= curve.slopes.back())) continue;
    if (curve.times.back() != time) break;
    curve.slopes.push_back(slope);
    curve.times.push_back(time + unit);
    curve.options.push_back(quantised.OptionWithin(time + unit));
  }
  return quantised;
}

class PerseusPublished : public Policy {
 public:
  explicit PerseusPublished(Nanoseconds unit) : unit_(unit) {}
  std::string_view name() const override { return "PerseusPublished"; }

  Result<PolicyPoints> Points(const Planner& planner,
                              std::span<const Nanoseconds> /*deadlines*/) const override {
    const OperationGraph& graph = planner.graph();
    std::vector<Quantised> sets;
    std::vector<Curve> curves;
    for (const OptionSet& set : graph.option_sets) {
      auto quantised = Quantise(set, planner.model().blocking_power_w, unit_);
      if (!quantised) return Fail(quantised);
      curves.push_back(quantised->curve);
      sets.push_back(*std::move(quantised));
    }
    auto network = BuildNetwork(graph, curves);
    if (!network) return Fail(network);

    std::vector<OperatingPoint> points;
    Walk walk(*network);
    for (;;) {
      const Solution solution = walk.solution();
      std::vector<int> options;
      for (std::size_t i = 0; i < graph.operations.size(); ++i) {
        const Arc& arc = network->arcs[i];
        const Nanoseconds time =
            solution.event_times[At(arc.head)] - solution.event_times[At(arc.tail)];
        options.push_back(sets[At(graph.operations[i].option_set)].OptionWithin(time));
      }
      points.push_back(MakePoint(planner, fmt::format("planned for {} s", ToSeconds(walk.time())),
                                 std::move(options)));
      if (walk.finished()) break;
      const Nanoseconds before = walk.time();
      while (!walk.finished() && walk.time() > before - unit_) walk.Advance(before - unit_);
      if (walk.time() == before) break;
    }
    return PolicyPoints{Undominated(std::move(points)), ""};
  }

 private:
  Nanoseconds unit_;
};

}  // namespace

std::unique_ptr<Policy> MakePerseus() { return std::make_unique<Perseus>(); }
std::unique_ptr<Policy> MakePerseusPublished(Nanoseconds unit) {
  return std::make_unique<PerseusPublished>(unit);
}

}  // namespace perseus
