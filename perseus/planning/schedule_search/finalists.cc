#include "perseus/planning/schedule_search/finalists.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/relaxed_energy.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {
namespace {

double BubbleOf(const plan::Planner& planner) {
  const plan::Evaluation& baseline = planner.baseline();
  const auto busy =
      std::accumulate(baseline.durations.begin(), baseline.durations.end(), Nanoseconds{0});
  return 1 - ToSeconds(busy) / (ToSeconds(baseline.time) * planner.pp_ranks());
}

// The effort of the searches for few changes, relative to their default. These searches only
// compare schedules. Another search makes the final plan.
constexpr double kEffortOfFewChanges = 0.25;
// If changes have a latency or a cost, few changes are often better, also without a limit.
constexpr int kFewChanges = 16;

Result<plan::Plan> PlanWithLimit(const plan::Planner& planner, Nanoseconds deadline,
                                 const few_switches::ChangeLimit& changes,
                                 const plan::SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner.PlanFor(deadline, limits));
  if (changes.IsNone() && planner.model().SwitchesAreFree()) return plan;
  const int most_changes = changes.most_changes ? *changes.most_changes
                           : changes.changes_per_s
                               ? few_switches::MostChanges(*changes.changes_per_s, deadline)
                               : kFewChanges;
  PERSEUS_ASSIGN_OR_RETURN(
      auto limited,
      few_switches::PlanFewSwitches(
          planner, deadline, std::span(&most_changes, 1), std::span(&plan, 1),
          {.effort = kEffortOfFewChanges, .stop = limits.stop, .finish = limits.finish}));
  const std::optional<plan::Plan>& found = limited.front().plan;
  if (changes.IsNone() && (!found || found->evaluation.energy_j >= plan.evaluation.energy_j)) {
    return plan;
  }
  if (found) return *found;
  return FailAs(ErrorKind::kUnreachable,
                "found no plan with at most {} clock changes per GPU that takes at most {:.6f} s "
                "(allow more changes)",
                most_changes, ToSeconds(deadline));
}

// The generated schedules within this memory, best relaxed energy first.
class GeneratedFinalists {
 public:
  GeneratedFinalists(const SearchJob& job, const Reference& reference, const Candidate& searched,
                     const MemoryLimit& limit, const MemoryLimit* judged)
      : energy_(job, reference.time, limit), optimum_(energy_.Judge(searched.schedule)) {
    for (schedule::Schedule& schedule : GeneratedCandidates(job, limit)) {
      if (!Fits(schedule, limit) || (judged != nullptr && Fits(schedule, *judged))) continue;
      if (schedule.pp_ranks != searched.schedule.pp_ranks)
        schedules_.push_back(std::move(schedule));
    }
  }

  // Returns the schedules that may have plans with less energy than `energy_j`.
  std::vector<Candidate> Below(double energy_j) const {
    std::vector<Candidate> below;
    for (const schedule::Schedule& schedule : schedules_) {
      std::optional<Judgment> threshold = optimum_;
      if (threshold) threshold->relaxed_energy_j = energy_j;
      const auto judgment = energy_.Judge(schedule, threshold ? &*threshold : nullptr);
      if (!judgment || judgment->relaxed_energy_j >= energy_j) continue;
      below.push_back({.schedule = schedule,
                       .origin = schedule.name,
                       .in_flight = schedule::PeakInFlight(schedule),
                       .relaxed_energy_j = judgment->relaxed_energy_j,
                       .time_at_maximum = judgment->time_at_maximum});
    }
    std::ranges::stable_sort(below, {}, &Candidate::relaxed_energy_j);
    return below;
  }

 private:
  RelaxedEnergy energy_;
  std::optional<Judgment> optimum_;  // Judgment of the searched schedule.
  std::vector<schedule::Schedule> schedules_;
};

// Returns the best plan with less energy than `energy_j`. After a finish request, returns the best
// one so far.
Result<std::optional<PlannedCandidate>> BestPlanBelow(const SearchJob& job,
                                                      const Reference& reference,
                                                      const GeneratedFinalists& generated,
                                                      double energy_j,
                                                      const plan::SearchLimits& limits) {
  std::optional<PlannedCandidate> best;
  for (Candidate& candidate : generated.Below(energy_j)) {
    if (candidate.relaxed_energy_j >= energy_j) break;
    auto planned = PlanCandidate(job, reference, std::move(candidate), limits);
    if (!planned && planned.error().kind != ErrorKind::kUnreachable) return Fail(planned);
    if (planned && planned->plan.evaluation.energy_j < energy_j) {
      energy_j = planned->plan.evaluation.energy_j;
      best = *std::move(planned);
    }
    if (limits.finish.stop_requested()) break;
  }
  return best;
}

}  // namespace

Result<PlannedCandidate> PlanCandidate(const SearchJob& job, const Reference& reference,
                                       Candidate candidate, const plan::SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, PlannerOf(job, candidate.schedule));
  PERSEUS_ASSIGN_OR_RETURN(auto plan, PlanWithLimit(planner, reference.time, job.changes, limits));
  const plan::Evaluation& evaluation = plan.evaluation;
  const double saving = 1 - evaluation.energy_j / reference.energy_j;
  const double changes = static_cast<double>(evaluation.switches) / planner.pp_ranks();
  return PlannedCandidate{.candidate = std::move(candidate),
                          .plan = std::move(plan),
                          .saving = saving,
                          .bubble = BubbleOf(planner),
                          .changes_per_rank = changes};
}

Result<PlannedCandidate> PlanBestFinalist(const SearchJob& job, const Reference& reference,
                                          Candidate searched, const MemoryLimit& limit,
                                          const plan::SearchLimits& limits,
                                          const MemoryLimit* judged) {
  const GeneratedFinalists generated(job, reference, searched, limit, judged);
  auto best = PlanCandidate(job, reference, std::move(searched), limits);
  if (!best && best.error().kind != ErrorKind::kUnreachable) return best;
  if (best && limits.finish.stop_requested()) return best;
  const double threshold_j = best ? best->plan.evaluation.energy_j : reference.energy_j;
  PERSEUS_ASSIGN_OR_RETURN(auto better,
                           BestPlanBelow(job, reference, generated, threshold_j, limits));
  if (better) return *std::move(better);
  return best;
}

Result<std::optional<PlannedCandidate>> PlanBetterGenerated(
    const SearchJob& job, const Reference& reference, const PlannedCandidate& than,
    const MemoryLimit& limit, const plan::SearchLimits& limits, const MemoryLimit& judged) {
  if (limits.finish.stop_requested()) return std::nullopt;
  const GeneratedFinalists generated(job, reference, than.candidate, limit, &judged);
  return BestPlanBelow(job, reference, generated, than.plan.evaluation.energy_j, limits);
}

bool HasBetterGenerated(const SearchJob& job, const Reference& reference, const Candidate& than,
                        const MemoryLimit& limit, const MemoryLimit& judged) {
  constexpr double kLess = 1 - 1e-5;  // Smaller differences may be errors of the estimates.
  const GeneratedFinalists generated(job, reference, than, limit, &judged);
  return !generated.Below(kLess * than.relaxed_energy_j).empty();
}

}  // namespace perseus::schedule_search
