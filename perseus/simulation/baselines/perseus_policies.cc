// Two policies of Perseus: our planner, and the planner of its authors (published_planner.h). As
// for all policies, the schedules of both are evaluated on the measured options.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "perseus/simulation/baselines/policy.h"
#include "perseus/simulation/baselines/published_planner.h"

namespace perseus::baselines {
namespace {

class Perseus : public Policy {
 public:
  explicit Perseus(recipe::Wishes wishes) : wishes_(std::move(wishes)) {}
  std::string_view name() const override { return "Perseus"; }
  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> times) const override {
    recipe::Progress silent;
    PERSEUS_ASSIGN_OR_RETURN(const auto plans, recipe::PlanJob(planner, wishes_, silent));
    const plan::Plan& usual = plans.Find(wishes_.targets.front())->plan;
    std::vector<OperatingPoint> points{MakePoint(planner, usual.target, usual.options)};
    for (const Nanoseconds time : times) {
      // The usual plan is sufficient for this time, unless its target allows more time.
      if (time <= planner.baseline().time && usual.evaluation.time <= time) continue;
      PERSEUS_ASSIGN_OR_RETURN(
          auto plan, recipe::PlanForStraggler(planner, wishes_.changes, usual.evaluation, time,
                                              fmt::format("within {} s", ToSeconds(time))));
      points.push_back({plan.target, plan.options, plan.evaluation});
    }
    return PolicyPoints{Undominated(planner, std::move(points)), ""};
  }

 private:
  recipe::Wishes wishes_;
};

// Keeps only the useful points of a very large number of points: the fastest, the best for each of
// the given times, and, for charts, the best in each of a thousand intervals of time.
class BestSoFar {
 public:
  BestSoFar(const plan::Planner& planner, std::span<const Nanoseconds> times, Nanoseconds range)
      : planner_(&planner), times_(times.begin(), times.end()), best_by_(times.size()) {
    constexpr Nanoseconds kIntervals = 1000;
    interval_ = std::max<Nanoseconds>(1, range / kIntervals);
  }

  void Offer(const OperatingPoint& point) {
    const Nanoseconds time = point.evaluation.time;
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (time <= times_[i]) KeepBetter(best_by_[i], point, times_[i]);
    }
    const Nanoseconds interval = time / interval_;
    KeepBetter(best_in_[interval], point, (interval + 1) * interval_);
    if (!fastest_ || time < fastest_->evaluation.time) fastest_ = point;
  }

  std::vector<OperatingPoint> Take() {
    std::vector<OperatingPoint> points;
    const auto take = [&](std::optional<OperatingPoint>& point) {
      if (point) points.push_back(*std::move(point));
    };
    take(fastest_);
    for (auto& point : best_by_) take(point);
    for (auto& [interval, point] : best_in_) take(point);
    return Undominated(*planner_, std::move(points));
  }

 private:
  void KeepBetter(std::optional<OperatingPoint>& kept, const OperatingPoint& point,
                  Nanoseconds until) const {
    if (!kept || planner_->EnergyUntil(until, point.evaluation) <
                     planner_->EnergyUntil(until, kept->evaluation)) {
      kept = point;
    }
  }

  const plan::Planner* planner_;
  std::vector<Nanoseconds> times_;
  Nanoseconds interval_ = 1;
  std::vector<std::optional<OperatingPoint>> best_by_;
  std::map<Nanoseconds, std::optional<OperatingPoint>> best_in_;
  std::optional<OperatingPoint> fastest_;
};

class PerseusPublished : public Policy {
 public:
  explicit PerseusPublished(Nanoseconds unit) : unit_(unit) {}
  std::string_view name() const override { return "PerseusPublished"; }

  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> times) const override {
    PERSEUS_ASSIGN_OR_RETURN(
        const auto published,
        PublishedPlanner::Create(planner.graph(), planner.model().blocking_power_w, unit_));
    const Nanoseconds range = published.slowest() - published.fastest();
    BestSoFar best(planner, times, range);
    double least_energy_j = std::numeric_limits<double>::infinity();
    published.ForEachSchedule([&](PublishedPlanner::Schedule schedule) {
      // Schedules come slowest first. With a straggler of T', this planner plans for min(T*, T'),
      // where T* is the fitted time of least energy. So it never uses a slower schedule than T*.
      if (schedule.energy_j <= least_energy_j) {
        least_energy_j = schedule.energy_j;
        best = BestSoFar(planner, times, range);
      }
      best.Offer(MakePoint(planner, fmt::format("planned for {} s", ToSeconds(schedule.time)),
                           std::move(schedule.options)));
    });
    return PolicyPoints{best.Take(), ""};
  }

 private:
  Nanoseconds unit_;
};

}  // namespace

std::unique_ptr<Policy> MakePerseus(recipe::Wishes wishes) {
  return std::make_unique<Perseus>(std::move(wishes));
}
std::unique_ptr<Policy> MakePerseusPublished(Nanoseconds unit) {
  return std::make_unique<PerseusPublished>(unit);
}

}  // namespace perseus::baselines
