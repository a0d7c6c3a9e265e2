#include "perseus/cli/verbs/summary_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using schedule_search::MemoryLimit;

constexpr const char* kLimits = "its limits of clock changes";
constexpr const char* kSearch = "the search for its schedule";

// These functions require values of the right types. For other types, json throws. at() also throws
// if the value is not an object.
int CountOf(const json& value) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const bool is_count = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                        value.get<std::int64_t>() <= kMost;
  return is_count ? value.get<int>() : json().get<int>();  // null is no number, so this throws.
}

std::optional<report::SwitchTradeoff> ParseTradeoff(const json& summary) {
  const double baseline_j = summary.at("baseline").at("energy_j").get<double>();
  const json& unlimited = summary.at("unlimited_plan");
  report::SwitchTradeoff tradeoff{
      unlimited.at("target").get<std::string>(), {}, unlimited.at("saving").get<double>()};
  if (summary.contains("max_switches")) {
    tradeoff.limit_of_plans = CountOf(summary.at("max_switches"));
  }
  for (const json& row : summary.at("switch_tradeoff")) {
    const json& energy = row.at("energy_j");
    const json& bound = row.at("lower_bound_j");
    std::optional<double> energy_j;
    if (!energy.is_null()) energy_j = energy.get<double>();
    // JSON has no infinity, so null means that no such plan can exist.
    const double lower_bound_j =
        bound.is_null() ? std::numeric_limits<double>::infinity() : bound.get<double>();
    tradeoff.limits.push_back(report::MakeSwitchLimit(CountOf(row.at("max_switches")), energy_j,
                                                      lower_bound_j, baseline_j));
  }
  return tradeoff;
}

std::optional<int> ParseMostSwitches(const json& summary) {
  const json::array_t& plans = summary.at("plans").get_ref<const json::array_t&>();
  if (plans.empty()) return std::nullopt;
  int most = 0;
  for (const json& plan : plans) {
    if (!plan.get_ref<const json::object_t&>().contains("max_switches")) return std::nullopt;
    most = std::max(most, CountOf(plan["max_switches"]));
  }
  return most;
}

std::optional<fs::path> ParseWorkingDirectory(const json& summary) {
  const json& job = summary.at("job");
  if (!job.contains("working_directory")) return std::nullopt;
  return fs::path(job.at("working_directory").get<std::string>());
}

std::optional<bool> ParseStoppedEarly(const json& summary) {
  return summary.at("stopped_early").get<bool>();
}

std::optional<job::AutoSchedule> ParseSearch(const json& summary) {
  const json& search = summary.at("schedule_search");
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
  PERSEUS_ASSIGN_OR_RETURN(search.profile, profile::ParseProfile(text, job.planned.profile));
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

Result<Summary> Summary::Read(const fs::path& source) {
  Summary summary;
  std::error_code error;
  summary.path_ = source / kPlanResults.summary;
  if (!fs::is_directory(source, error) || !fs::exists(summary.path_, error)) return summary;
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, ReadFile(summary.path_));
  summary.json_ = ParseJson(text);
  return summary;
}

template <typename Value>
Result<std::optional<Value>> Summary::Parse(const char* key, const char* what,
                                            std::optional<Value> (*parse)(const json&)) const {
  if (!json_.is_object() || !json_.contains(key)) return std::nullopt;
  try {
    return parse(json_);
  } catch (const json::exception&) {
    return CannotRead(what);
  }
}

tl::unexpected<Error> Summary::CannotRead(const char* what) const {
  return Fail(InFile(path_.string()),
              "{} cannot be read (the file was probably edited: plan again)", what);
}

Result<std::optional<report::SwitchTradeoff>> Summary::Tradeoff() const {
  return Parse("unlimited_plan", kLimits, ParseTradeoff);
}

Result<std::optional<int>> Summary::MostSwitches() const {
  return Parse("plans", kLimits, ParseMostSwitches);
}

Result<std::optional<fs::path>> Summary::WorkingDirectory() const {
  PERSEUS_ASSIGN_OR_RETURN(auto directory,
                           Parse("job", "its working directory", ParseWorkingDirectory));
  // The summary has the way from its own directory.
  if (directory) directory = path_.parent_path() / *directory;
  return directory;
}

Result<bool> Summary::StoppedEarly() const {
  PERSEUS_ASSIGN_OR_RETURN(const auto stopped, Parse("stopped_early", kLimits, ParseStoppedEarly));
  return stopped.value_or(false);
}

Result<std::optional<job::AutoSchedule>> Summary::Search(const job::LoadedJob& job) const {
  PERSEUS_ASSIGN_OR_RETURN(auto search, Parse("schedule_search", kSearch, ParseSearch));
  if (!search) return search;
  if (!Describes(*search, job.planned.schedule)) return CannotRead(kSearch);
  PERSEUS_RETURN_IF_ERROR(PlanAgain(job, *search));
  return search;
}

std::string ProfileOfPlan(const plan_file::PlanFile& plan, const std::string& plan_path) {
  std::vector<fs::path> directories{fs::path(plan_path).parent_path()};
  // The run has its plans in DIR/plans, and its summary in DIR.
  if (const auto summary = Summary::Read(directories.front() / fs::path(".."))) {
    const auto of_run = summary->WorkingDirectory();
    if (of_run && *of_run) directories.insert(directories.begin(), **of_run);
  }
  std::error_code error;
  for (const fs::path& directory : directories) {
    const fs::path from_here = fs::proximate(directory.empty() ? "." : directory, error);
    const fs::path place = (from_here / plan.job.profile).lexically_normal();
    if (fs::is_regular_file(place, error)) return place.string();
  }
  return plan.job.profile;
}

}  // namespace perseus::cli
