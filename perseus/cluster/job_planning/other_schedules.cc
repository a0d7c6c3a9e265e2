#include "perseus/cluster/job_planning/other_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/in_flight.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::job_planning {
namespace {

using nlohmann::ordered_json;

ordered_json RowJson(const schedule_search::PlannedCandidate& row) {
  return {{"in_flight", row.candidate.in_flight},
          {"energy_j", row.plan.evaluation.energy_j},
          {"saving", row.saving}};
}

// Whether stages R to 2R - 1 of R pp_ranks are on the way up.
bool IsInAV(const schedule::Schedule& schedule) {
  const auto pp_ranks = static_cast<int>(schedule.pp_ranks.size());
  return schedule.stages() == 2 * pp_ranks && pp_ranks > 1 &&
         schedule.pp_rank_of_stage[schedule.pp_ranks.size()] == pp_ranks - 1;
}

// What a next run would save, for a person: "A next run with +1 (5 4 3 1 microbatches in flight,
// now 4 3 2 1) saves another 5.20 % of the energy, at no slowdown."
std::string Conclude(const std::vector<std::int64_t>& in_flight, double saving,
                     const std::vector<schedule_search::TradeoffRow>& others) {
  std::string text;
  double said = saving;
  const auto say = [&](const schedule_search::TradeoffRow& other) {
    if (other.saving - said < schedule_search::kWorthSaying) return;
    said = other.saving;
    text += fmt::format(
        "A next run with +{} ({} microbatches in flight, now {}) saves another {:.2f} % of the "
        "energy, at no slowdown, if its GPUs have the memory. ",
        other.more, schedule_search::FormatInFlight(other.candidate.in_flight),
        schedule_search::FormatInFlight(in_flight), (other.saving - saving) * 100);
  };
  const auto first = std::ranges::find_if(others, [&](const schedule_search::TradeoffRow& other) {
    return other.saving - saving >= schedule_search::kWorthSaying;
  });
  if (first == others.end()) return "None of these schedules saves more than that of the job.";
  say(*first);
  say(others.back());
  return text + "This run keeps its schedule.";
}

}  // namespace

Result<std::string> CompareSchedules(const store::JobRecord& job,
                                     const store::ProfileRecord& profile,
                                     const std::stop_token& stop) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto parsed, profile::ParseProfile(profile.csv, fmt::format("profile {} of {}",
                                                                        profile.version, job.key)));
  const schedule::Schedule& own = spec.planned.schedule;
  schedule_search::SearchJob search{
      .profile = parsed,
      .model = spec.planned.model,
      .execution = plan::ModelOf(spec.planned),
      .pp_ranks = static_cast<int>(own.pp_ranks.size()),
      .microbatches = own.microbatches,
      .changes = {.most_changes = spec.most_switches, .changes_per_s = spec.most_changes_per_s}};
  if (IsInAV(own)) search.placement = schedule_search::Placement::kV;
  schedule_search::TradeoffOptions options{.stop = stop, .finish = {}, .progress = {}};
  options.more = {0, 1, 2};
  PERSEUS_ASSIGN_OR_RETURN(const auto tradeoff, schedule_search::ComputeTradeoff(search, options));
  const schedule_search::Reference& reference = tradeoff.reference;
  schedule_search::Candidate running{.schedule = own,
                                     .origin = own.name,
                                     .in_flight = schedule::PeakInFlight(own),
                                     .relaxed_energy_j = 0,
                                     .time_at_maximum = 0};
  // kUnreachable: it cannot be as fast as the reference. Any other error says nothing of that.
  const auto row =
      schedule_search::PlanCandidate(search, reference, std::move(running),
                                     {.effort = plan::kFirstLook, .stop = stop, .finish = {}});
  if (!row && row.error().kind != ErrorKind::kUnreachable) {
    return FailAs(row.error().kind, "the schedule of the job: {}", row.error().message);
  }
  auto others = ordered_json::array();
  for (const schedule_search::TradeoffRow& other : tradeoff.rows) {
    ordered_json json{{"more_in_flight", other.more}};
    json.update(RowJson(other));
    if (other.most_saving) json["most_saving"] = *other.most_saving;
    json["csv"] = schedule::FormatSchedule(other.candidate.schedule);
    others.push_back(std::move(json));
  }
  const ordered_json json{
      {"profile_version", profile.version},
      {"reference",
       {{"schedule", reference.schedule.name},
        {"in_flight", reference.in_flight},
        {"time_s", ToSeconds(reference.time)},
        {"energy_j", reference.energy_j}}},
      {"running", row ? RowJson(*row) : ordered_json()},
      {"others", std::move(others)},
      {"conclusion", row ? Conclude(schedule::PeakInFlight(own), row->saving, tradeoff.rows)
                         : fmt::format("The schedule of the job takes longer than {}, so their "
                                       "energies are not compared.",
                                       reference.schedule.name)}};
  return json.dump();
}

}  // namespace perseus::job_planning
