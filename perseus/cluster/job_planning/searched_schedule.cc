#include "perseus/cluster/job_planning/searched_schedule.h"

#include <string_view>
#include <utility>

#include "perseus/planning/job/auto_schedule.h"
#include "perseus/planning/plan/make_plan_file.h"

namespace perseus::job_planning {
namespace {

using json_file::Node;
using json_file::ThrowAt;

constexpr int kMostMicrobatches = 65536;

std::vector<int> ReadMaxInFlight(const Node& node) {
  constexpr std::string_view kUnit = "a number of microbatches";
  if (!node.value.is_array()) return {node.Count(1, kMostMicrobatches, kUnit)};
  std::vector<int> most;
  const std::size_t size = node.ListSize();
  if (size == 0) ThrowAt(node.path, "is empty (expected a number for each pp_rank)");
  for (std::size_t i = 0; i < size; ++i) {
    most.push_back(node[i].Count(1, kMostMicrobatches, kUnit));
  }
  return most;
}

// The rest of a registration does not depend on the order of the instructions.
JobSpec ReadSpecOfSize(const Node& registration, int pp_ranks, int microbatches) {
  nlohmann::json stand_in = registration.value;
  stand_in["schedule"] = {{"kind", "1f1b"}, {"pp_ranks", pp_ranks}, {"microbatches", microbatches}};
  return ReadJobSpec({stand_in, registration.path});
}

}  // namespace

std::size_t ScheduleQuestion::instructions() const {
  return 2 * static_cast<std::size_t>(profile.stages()) *
         static_cast<std::size_t>(profile.chunks()) * static_cast<std::size_t>(microbatches);
}

bool AsksForSchedule(const nlohmann::json& registration) {
  if (!registration.is_object() || !registration.contains("schedule")) return false;
  const nlohmann::json& schedule = registration["schedule"];
  return schedule.is_object() && schedule.contains("kind") &&
         schedule["kind"] == job::kAutoSchedule;
}

ScheduleQuestion ReadScheduleQuestion(const Node& registration) {
  const Node schedule = registration.Member("schedule");
  schedule.RequireObject({"kind", "microbatches", "profile", "max_in_flight", "fold"});
  const Node csv = schedule.Member("profile", "the text of a profile, to search with");
  auto profile = profile::ParseProfile(csv.Text(), "the profile");
  if (!profile) ThrowAt(csv.path, "is not possible: {}", profile.error().message);
  const int microbatches = schedule.Member("microbatches")
                               .Count(1, kMostMicrobatches, "a number of microbatches, such as 96");
  ScheduleQuestion question{
      .spec = ReadSpecOfSize(registration, profile->stages(), microbatches),
      .profile = *std::move(profile),
      .microbatches = microbatches,
      .max_in_flight = {},
  };
  if (schedule.Has("max_in_flight")) {
    question.max_in_flight = ReadMaxInFlight(schedule.Member("max_in_flight"));
  }
  if (schedule.Has("fold") && schedule.Member("fold").Flag()) {
    question.placement = schedule_search::Placement::kV;
  }
  return question;
}

Result<schedule::Schedule> FindSchedule(const ScheduleQuestion& question,
                                        const std::stop_token& stop) {
  const JobSpec& spec = question.spec;
  const schedule_search::SearchJob search{
      .profile = question.profile,
      .model = spec.planned.model,
      .execution = plan::ModelOf(spec.planned),
      .pp_ranks = question.profile.stages(),
      .microbatches = question.microbatches,
      .changes = {.most_changes = spec.most_switches, .changes_per_s = spec.most_changes_per_s},
      .placement = question.placement};
  schedule_search::SearchEffort effort;
  effort.stop = stop;
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, job::FindAutoSchedule(search, question.max_in_flight, job::GpuMemory(), effort));
  return std::move(found.found.candidate.schedule);
}

}  // namespace perseus::job_planning
