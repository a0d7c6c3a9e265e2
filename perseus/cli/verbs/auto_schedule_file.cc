#include "perseus/cli/verbs/auto_schedule_file.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using schedule_search::MemoryLimit;

constexpr const char* kKey = "schedule_search";

// Requires numbers where there must be numbers: json throws otherwise.
job::AutoSchedule ParseSearch(const json& search) {
  job::AutoSchedule schedule;
  const json& memory = search.at("memory");
  const bool is_in_bytes = memory.at("unit").get<std::string>() == "bytes";
  schedule.limit = {
      .of_pp_rank = memory.at("of_pp_rank").get<std::vector<std::int64_t>>(),
      .size_of_stage = memory.at("of_microbatch").get<std::vector<std::int64_t>>(),
      .kept_of_stage = memory.value("kept_of_microbatch", std::vector<std::int64_t>()),
      .unit = is_in_bytes ? MemoryLimit::Unit::kBytes : MemoryLimit::Unit::kMicrobatches};
  if (search.contains("activation_bytes")) {
    schedule.memory.bytes.activations =
        search.at("activation_bytes").get<std::vector<std::int64_t>>();
  }
  if (is_in_bytes) schedule.memory.bytes.available = schedule.limit.of_pp_rank;
  schedule.memory.bytes.kept = schedule.limit.kept_of_stage;
  if (search.value("fold", false)) schedule.placement = schedule_search::Placement::kV;
  schedule.memory.source = search.value("memory_source", "");
  if (search.contains("max_switches")) {
    schedule.changes.most_changes = search.at("max_switches").get<int>();
  }
  if (search.contains("most_changes_per_s")) {
    schedule.changes.changes_per_s = search.at("most_changes_per_s").get<double>();
  }
  return schedule;
}

bool Describes(const job::AutoSchedule& search, const schedule::Schedule& schedule) {
  const std::size_t stages = schedule.pp_rank_of_stage.size();
  const auto& bytes = search.memory.bytes.activations;
  return search.limit.of_pp_rank.size() == schedule.pp_ranks.size() &&
         search.limit.size_of_stage.size() == stages &&
         (search.limit.kept_of_stage.empty() || search.limit.kept_of_stage.size() == stages) &&
         (bytes.empty() || bytes.size() == stages);
}

Result<void> PlanAgain(const job::LoadedJob& job, job::AutoSchedule& search) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(job.planned.profile));
  PERSEUS_ASSIGN_OR_RETURN(auto profile, profile::ParseProfile(text, job.planned.profile));
  search.profile = std::move(profile);
  const schedule::Schedule& schedule = job.planned.schedule;
  const schedule_search::SearchJob searched{.profile = *search.profile,
                                            .model = job.planned.model,
                                            .execution = job.model,
                                            .pp_ranks = static_cast<int>(schedule.pp_ranks.size()),
                                            .microbatches = schedule.microbatches,
                                            .changes = search.changes,
                                            .placement = search.placement};
  PERSEUS_ASSIGN_OR_RETURN(search.reference,
                           schedule_search::FindReference(searched, search.limit));
  PERSEUS_ASSIGN_OR_RETURN(
      search.found,
      schedule_search::PlanCandidate(searched, search.reference,
                                     {.schedule = schedule,
                                      .origin = schedule.name,
                                      .in_flight = schedule::PeakInFlight(schedule)},
                                     {.effort = plan::kFirstLook, .stop = {}, .finish = {}}));
  search.found.candidate.schedule.name = job::kAutoSchedule;
  return {};
}

}  // namespace

ordered_json DescribeSearch(const job::AutoSchedule& schedule,
                            const schedule_search::Tradeoff& compared) {
  const schedule_search::Reference& reference = schedule.reference;
  const schedule_search::TradeoffRow& row = compared.rows.front();
  const bool is_in_bytes = schedule.limit.unit == MemoryLimit::Unit::kBytes;
  ordered_json search{{"reference",
                       {{"schedule", reference.schedule.name},
                        {"in_flight", reference.in_flight},
                        {"time_s", ToSeconds(reference.time)},
                        {"energy_j", reference.energy_j},
                        {"saving", compared.fixed.saving}}},
                      {"found",
                       {{"from", row.candidate.origin},
                        {"in_flight", row.candidate.in_flight},
                        {"time_at_maximum_s", ToSeconds(row.candidate.time_at_maximum)},
                        {"saving", row.saving}}},
                      {"memory",
                       {{"unit", is_in_bytes ? "bytes" : "microbatches"},
                        {"of_pp_rank", schedule.limit.of_pp_rank},
                        {"of_microbatch", schedule.limit.size_of_stage}}}};
  if (!schedule.limit.kept_of_stage.empty()) {
    search["memory"]["kept_of_microbatch"] = schedule.limit.kept_of_stage;
  }
  if (schedule.placement == schedule_search::Placement::kV) search["fold"] = true;
  if (row.most_saving) search["found"]["most_saving"] = *row.most_saving;
  if (!schedule.memory.bytes.activations.empty()) {
    search["activation_bytes"] = schedule.memory.bytes.activations;
  }
  if (!schedule.memory.source.empty()) search["memory_source"] = schedule.memory.source;
  if (schedule.changes.most_changes) search["max_switches"] = *schedule.changes.most_changes;
  if (schedule.changes.changes_per_s) {
    search["most_changes_per_s"] = *schedule.changes.changes_per_s;
  }
  return search;
}

Result<std::optional<job::AutoSchedule>> ReadSearch(const fs::path& source,
                                                    const job::LoadedJob& job) {
  std::error_code error;
  const fs::path path = source / kPlanResults.summary;
  if (!fs::is_directory(source, error) || !fs::exists(path, error)) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const json summary = json::parse(text, nullptr, false);
  if (!summary.is_object() || !summary.contains(kKey)) return std::nullopt;
  const auto refuse = [&] {
    return Fail(
        "{}: the search for its schedule cannot be read (the file was probably edited: plan again)",
        path.string());
  };
  job::AutoSchedule search;
  try {
    search = ParseSearch(summary.at(kKey));
  } catch (const json::exception&) {
    return refuse();
  }
  if (!Describes(search, job.planned.schedule)) return refuse();
  PERSEUS_RETURN_IF_ERROR(PlanAgain(job, search));
  return std::optional(std::move(search));
}

}  // namespace perseus::cli
