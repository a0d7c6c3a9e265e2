#include "perseus/simulation/baselines/published_planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::baselines {
namespace {

// Rounds a number of seconds up to three digits.
double RoundedUp(double unit_s) {
  const double digit = std::pow(10, std::floor(std::log10(unit_s)) - 2);
  return std::ceil(unit_s / digit) * digit;
}

}  // namespace

int PublishedPlanner::Quantized::OptionWithin(Nanoseconds time) const {
  const auto after = std::ranges::upper_bound(times, time);
  return options[At(static_cast<int>(after - times.begin()) - 1)];
}

Result<PublishedPlanner> PublishedPlanner::Create(const schedule::InstructionGraph& graph,
                                                  double blocking_power_w, Nanoseconds unit) {
  PublishedPlanner planner(graph, blocking_power_w, unit);
  for (const schedule::OptionSet& set : graph.option_sets) {
    PERSEUS_ASSIGN_OR_RETURN(auto quantized, planner.Quantize(set));
    planner.sets_.push_back(std::move(quantized));
  }
  PERSEUS_RETURN_IF_ERROR(planner.CountSteps());
  std::vector<profile::Curve> curves;
  for (std::size_t i = 0; i < graph.option_sets.size(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(auto curve, planner.Fit(graph.option_sets[i], planner.sets_[i]));
    curves.push_back(std::move(curve));
  }
  PERSEUS_ASSIGN_OR_RETURN(auto network, frontier::BuildNetwork(graph, curves));
  planner.network_ = std::move(network);
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    planner.least_effective_energy_j_ +=
        curves[At(instruction.option_set)].least_effective_energy_j;
  }
  return planner;
}

Result<PublishedPlanner::Quantized> PublishedPlanner::Quantize(
    const schedule::OptionSet& set) const {
  Quantized quantized;
  constexpr double kNoBlockingPower = 0;  // So that measured energies are compared.
  for (const int index : profile::ParetoFront(set.options, kNoBlockingPower)) {
    const profile::Option& option = set.options[At(index)];
    const Nanoseconds time = set.options.size() > 1 ? option.time / unit_ * unit_ : option.time;
    if (time == 0 && option.time > 0) {
      return Fail("{}: takes less than the unit of {} s (choose a smaller `unit`)", set.name,
                  ToSeconds(unit_));
    }
    // If times are equal, the first option is used: the fastest as measured, with the most energy.
    if (!quantized.times.empty() && quantized.times.back() == time) continue;
    quantized.options.push_back(index);
    quantized.times.push_back(time);
    quantized.effective_energies_j.push_back(option.energy_j - blocking_power_w_ * ToSeconds(time));
  }
  return quantized;
}

Result<void> PublishedPlanner::CountSteps() {
  // Energies do not matter here.
  std::vector<profile::Curve> curves;
  Nanoseconds most = 0;
  for (const Quantized& set : sets_) {
    profile::Curve curve{{set.times.front()}, {}, {}, 0};
    if (set.times.size() > 1) {
      curve.times.push_back(set.times.back());
      curve.slopes.push_back(1);
      most = std::max(most, set.times.back() - set.times.front());
    }
    curves.push_back(std::move(curve));
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto network, frontier::BuildNetwork(*graph_, curves));
  const auto sink = At(network.sink);
  slowest_ = frontier::EarliestTimes(network, frontier::Pace::kSlowest)[sink];
  fastest_ = frontier::EarliestTimes(network, frontier::Pace::kFastest)[sink];
  most = std::max(most, slowest_ - fastest_);
  const auto instructions = static_cast<std::int64_t>(graph_->instructions.size());
  const std::int64_t most_steps =
      std::clamp<std::int64_t>(kMostEffort / instructions, 2, kMostSteps);
  if (most / unit_ <= most_steps) return {};
  // The larger unit may make the range longer by one step.
  const double least_s = RoundedUp(ToSeconds(most) / static_cast<double>(most_steps - 1));
  return Fail(
      "a unit of {:g} ms gives {} steps from the slowest schedule to the fastest, each of {} "
      "instructions (choose `unit = {:g}` or more)",
      ToMilliseconds(unit_), most / unit_, instructions, least_s * kMillisecondsPerSecond);
}

Result<profile::Curve> PublishedPlanner::Fit(const schedule::OptionSet& set,
                                             const Quantized& quantized) const {
  profile::Curve curve;
  curve.times.push_back(quantized.times.front());
  curve.options.push_back(quantized.options.front());
  curve.least_effective_energy_j = quantized.effective_energies_j.back();
  if (quantized.times.size() == 1) return curve;
  std::vector<profile::Option> samples;
  for (std::size_t i = 0; i < quantized.times.size(); ++i) {
    samples.push_back({.frequency_mhz = 0,
                       .other_knobs = {},
                       .time = quantized.times[i],
                       .energy_j = quantized.effective_energies_j[i]});
  }
  const auto fit = profile::FitExponential(samples, 0);  // These energies are already effective.
  if (!fit) return Fail("{}: {} (choose a smaller `unit`)", set.name, fit.error().Message());
  for (Nanoseconds time = curve.times.back(); time < quantized.times.back(); time += unit_) {
    const double slope_w =
        (fit->At(ToSeconds(time)) - fit->At(ToSeconds(time + unit_))) / ToSeconds(unit_);
    const Microwatts slope = FromWatts(slope_w);
    // Skips steps where the fit is flat to a microwatt, or not convex because of rounding.
    if (slope <= 0 || (!curve.slopes.empty() && slope >= curve.slopes.back())) continue;
    if (curve.times.back() != time) break;
    curve.slopes.push_back(slope);
    curve.times.push_back(time + unit_);
    curve.options.push_back(quantized.OptionWithin(time + unit_));
  }
  curve.least_effective_energy_j = fit->At(ToSeconds(curve.times.back()));
  return curve;
}

PublishedPlanner::Schedule PublishedPlanner::ScheduleAt(const frontier::Walk& walk) const {
  const frontier::Solution solution = walk.solution();
  Schedule schedule;
  schedule.time = walk.time();
  schedule.energy_j = least_effective_energy_j_ + ToJoules(walk.extra_energy()) +
                      blocking_power_w_ * static_cast<double>(graph_->pp_rank_orders.size()) *
                          ToSeconds(walk.time());
  for (std::size_t i = 0; i < graph_->instructions.size(); ++i) {
    const frontier::Arc& arc = network_.arcs[i];
    const Nanoseconds time =
        solution.event_times[At(arc.head)] - solution.event_times[At(arc.tail)];
    schedule.options.push_back(sets_[At(graph_->instructions[i].option_set)].OptionWithin(time));
  }
  return schedule;
}

}  // namespace perseus::baselines
