#include "perseus/runtime/tuner/step_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"

namespace perseus::tuner {
namespace {

// The fraction by which a plan may be slower than promised, in addition to the standard errors
// below. Also the fraction by which a plan may need more energy than the baseline.
constexpr double kTolerated = 0.01;
constexpr double kToleratedStandardErrors = 3;

// Checks that the rank recorded the range and the step after it, and ran these steps with this
// version.
Result<void> CheckRan(const LoggedRank& rank, const protocol::RankId& name,
                      const StepRange& range) {
  for (std::int64_t number = range.begin; number < range.end; ++number) {
    const protocol::RanStep* step = rank.Find(number);
    if (step == nullptr)
      return Fail("rank {} did not record step {} (its log says why; run it again)", Name(name),
                  number);
    if (step->assignment_version != range.version) {
      return Fail(
          "rank {} ran step {} with assignment {} instead of {} (its log has a remark with the "
          "reason, or it reads the directory too late)",
          Name(name), number, step->assignment_version, range.version);
    }
    if (!step->on_plan) {
      return Fail(
          "rank {} ran step {} in another order than the plan (is the plan for this schedule?)",
          Name(name), number);
    }
  }
  if (rank.Find(range.end) != nullptr) return {};
  return Fail("rank {} did not record step {} (its log says why; run it again)", Name(name),
              range.end);
}

// The time from the first to the last instruction, in nanoseconds since 1970. The end of the step
// is not used, because on a GPU a step may return before it has run.
struct Span {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};
Span SpanOf(const LoggedRank& rank, std::int64_t number) {
  const protocol::RanStep& step = *rank.Find(number);
  const Nanoseconds since_1970 = rank.header.epoch + step.begin;
  if (step.instructions.empty()) return {since_1970, rank.header.epoch + step.end};
  const protocol::RanInstruction& last = step.instructions.back();
  return {since_1970 + step.instructions.front().begin, since_1970 + last.begin + last.duration};
}

double OverlapOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                      const StepRange& range) {
  std::vector<double> overlaps;
  for (std::int64_t number = range.begin; number < range.end; ++number) {
    std::map<int, Span> of_pipelines;  // The end of this step, and the start of the next step.
    for (const protocol::RankId& name : ranks) {
      const LoggedRank& rank = logs.ranks().at(name);
      const Span now{SpanOf(rank, number + 1).begin, SpanOf(rank, number).end};
      Span& all = of_pipelines.try_emplace(name.dp_rank, now).first->second;
      all = {std::min(all.begin, now.begin), std::max(all.end, now.end)};
    }
    Nanoseconds most = 0;
    for (const auto& [pipeline, span] : of_pipelines) most = std::max(most, span.end - span.begin);
    overlaps.push_back(ToSeconds(most));
  }
  return Median(std::move(overlaps));
}

PromiseRange RangeWith(double promised, double seen, double error, int degrees_of_freedom) {
  const double half = error > 0 ? error * StudentHalfWidth(std::max(1, degrees_of_freedom)) : 0;
  return {promised, std::min(promised, seen - half), std::max(promised, seen + half)};
}

}  // namespace

Result<double> TimeOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                           const StepRange& range) {
  double time_s = 0;
  for (const protocol::RankId& name : ranks) {
    const LoggedRank& rank = logs.ranks().at(name);
    PERSEUS_RETURN_IF_ERROR(CheckRan(rank, name, range));
    time_s += ToSeconds(rank.Find(range.end)->begin - rank.Find(range.begin)->begin);
  }
  return time_s / static_cast<double>(range.end - range.begin) / static_cast<double>(ranks.size());
}

Result<StepCost> CostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                             const StepRange& range) {
  StepCost cost;
  PERSEUS_ASSIGN_OR_RETURN(cost.time_s, TimeOfSteps(logs, ranks, range));
  for (const protocol::RankId& name : ranks) {
    const LoggedRank& rank = logs.ranks().at(name);
    const auto energy_j =
        rank.energy.Between(rank.Find(range.begin)->begin, rank.Find(range.end)->begin);
    if (!energy_j) {
      return Fail(
          "rank {} recorded no energy in steps {} to {} (can it read its GPU's counter? See "
          "PERSEUS_DEVICES and perseus doctor)",
          Name(name), range.begin, range.end);
    }
    const double each_j = *energy_j / static_cast<double>(range.end - range.begin);
    cost.energy_j += each_j;
    cost.pipelines_j[name.dp_rank] += each_j;
  }
  return cost;
}

Result<UsualCost> UsualCostOfSteps(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                                   const StepRange& range) {
  PERSEUS_ASSIGN_OR_RETURN(const auto mean, CostOfSteps(logs, ranks, range));
  std::vector<double> times;
  const LoggedRank& any = logs.ranks().at(*ranks.begin());
  for (std::int64_t number = range.begin; number < range.end; ++number) {
    times.push_back(ToSeconds(any.Find(number + 1)->begin - any.Find(number)->begin));
  }
  UsualCost cost{
      .time_s = Median(times), .energy_j = mean.energy_j, .pipelines_j = mean.pipelines_j};
  std::vector<double> energies;
  for (std::int64_t number = range.begin; number < range.end; ++number) {
    PERSEUS_ASSIGN_OR_RETURN(const auto one,
                             CostOfSteps(logs, ranks, {number, number + 1, range.version}));
    energies.push_back(one.energy_j);
  }
  cost.energy_error_j =
      StandardDeviation(energies) / std::sqrt(static_cast<double>(energies.size()));
  cost.steps = static_cast<int>(energies.size());
  cost.overlap_s = OverlapOfSteps(logs, ranks, range);
  cost.time_error_s = kErrorOfMedian * kDeviationsOfMad * MedianDeviation(times, cost.time_s) /
                      std::sqrt(static_cast<double>(times.size()));
  return cost;
}

Nanoseconds TimeWithoutWork(const JobLogs& logs, const std::set<protocol::RankId>& ranks,
                            std::int64_t first, std::int64_t last) {
  std::vector<double> times;
  for (std::int64_t number = first; number < last; ++number) {
    double least = std::numeric_limits<double>::infinity();
    for (const protocol::RankId& name : ranks) {
      const LoggedRank& rank = logs.ranks().at(name);
      const protocol::RanStep* step = rank.Find(number);
      const protocol::RanStep* next = rank.Find(number + 1);
      if (step == nullptr || next == nullptr) continue;
      const Nanoseconds idle = next->begin - step->begin - step->TimeOfWork();
      least = std::min(least, static_cast<double>(std::max<Nanoseconds>(0, idle)));
    }
    if (std::isfinite(least)) times.push_back(least);
  }
  return times.empty() ? 0 : static_cast<Nanoseconds>(Median(std::move(times)));
}

SeenSteps SeenStepsOf(const UsualCost& planned, const UsualCost& baseline) {
  SeenSteps seen{planned.time_s, planned.energy_j, baseline.time_s, baseline.energy_j,
                 std::hypot(baseline.time_error_s, planned.time_error_s)};
  seen.saving_error = (1 - seen.saving()) * std::hypot(planned.energy_error_j / planned.energy_j,
                                                       baseline.energy_error_j / baseline.energy_j);
  seen.degrees_of_freedom = planned.steps + baseline.steps - 2;
  seen.overlap_s = baseline.overlap_s;
  seen.pipelines_j = planned.pipelines_j;
  seen.baseline_pipelines_j = baseline.pipelines_j;
  return seen;
}

SeenSteps SeenSteps::OfPipelines(std::span<const int> dp_ranks) const {
  SeenSteps seen = *this;
  seen.energy_j = seen.baseline_energy_j = 0;
  const double share =
      static_cast<double>(pipelines_j.size()) / static_cast<double>(dp_ranks.size());
  for (const int dp_rank : dp_ranks) {
    seen.energy_j += share * pipelines_j.at(dp_rank);
    seen.baseline_energy_j += share * baseline_pipelines_j.at(dp_rank);
  }
  return seen;
}

PromiseRange RangeOfSaving(double promised, const SeenSteps& seen) {
  return RangeWith(promised, seen.saving(), seen.saving_error, seen.degrees_of_freedom);
}

PromiseRange RangeOfSlowdown(double promised, const SeenSteps& seen) {
  return RangeWith(promised, seen.slowdown(), seen.time_error_s / seen.baseline_time_s,
                   seen.degrees_of_freedom);
}

Result<void> CheckSeen(const SeenSteps& seen, double promised_slowdown) {
  const double most_s = seen.baseline_time_s * (1 + promised_slowdown + kTolerated) +
                        kToleratedStandardErrors * seen.time_error_s;
  if (seen.time_s > most_s) {
    return FailAs(
        ErrorKind::kUnreachable,
        "a step takes {:.4f} s with the plan and {:.4f} s at the highest clocks: {} more, "
        "but the plan promised {}; the previous clocks are in force again ({})",
        seen.time_s, seen.baseline_time_s, FormatPercent(seen.slowdown()),
        FormatPercent(promised_slowdown),
        seen.StepsOverlap()
            ? "ranks begin a step before others have ended the last one, and plans do not know that"
            : "is the switch latency in the job file? Does the order of instructions differ from "
              "the schedule?");
  }
  if (seen.energy_j > (1 + kTolerated) * seen.baseline_energy_j) {
    return FailAs(ErrorKind::kUnreachable,
                  "a step takes {:.1f} J with the plan and {:.1f} J at the highest clocks; the "
                  "previous clocks are in force again (is the blocking power right? 0 measures it)",
                  seen.energy_j, seen.baseline_energy_j);
  }
  return {};
}

}  // namespace perseus::tuner
