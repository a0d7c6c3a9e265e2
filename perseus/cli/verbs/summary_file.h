// Writes and reads the parts of the summary of `perseus plan` that `perseus report` needs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {

// Describes the search for the schedule of a job (`perseus plan --schedule auto`). With this
// description, Summary::Search can compare the schedule with its reference again.
nlohmann::ordered_json DescribeSearch(const job::AutoSchedule& schedule,
                                      const schedule_search::Tradeoff& compared);

// The summary of a run. Each method fails (kInput) if the part of the summary that it reads has
// another form.
class Summary {
 public:
  // If `source` is not a directory with a summary, the result is empty.
  static Result<Summary> Read(const std::filesystem::path& source);

  // The limits of clock changes that the run compared. nullopt if the run compared no limits.
  Result<std::optional<report::SwitchTradeoff>> Tradeoff() const;
  // The limit that all plans of the run keep. nullopt if a plan has no limit.
  Result<std::optional<int>> MostSwitches() const;
  // The working directory of the run, from which the paths of its plans are relative. nullopt if it
  // is unknown.
  Result<std::optional<std::filesystem::path>> WorkingDirectory() const;
  // Whether the user stopped the run.
  Result<bool> StoppedEarly() const;
  // Returns the search that found the schedule of `job`, or nullopt if the run did not search. The
  // summary does not contain the first plan of the schedule, so this method makes this plan again
  // with the job's profile.
  Result<std::optional<job::AutoSchedule>> Search(const job::LoadedJob& job) const;

 private:
  // Returns the result of `parse` on the summary, or nullopt if the summary has no `key`. An error
  // message contains `what`.
  template <typename Value>
  Result<std::optional<Value>> Parse(const char* key, const char* what,
                                     std::optional<Value> (*parse)(const nlohmann::json&)) const;
  tl::unexpected<Error> CannotRead(const char* what) const;

  std::filesystem::path path_;
  nlohmann::json json_;
};

// Returns the path of the profile (or graph) that a plan names. A relative path begins in the
// working directory of the run that wrote the plan, if that run's summary is there; else beside the
// plan; else in the working directory of this process. The first of these files that exists counts.
// So a plan can be used from any directory, and no other file with this name replaces the profile.
// If none exists, returns the path as the plan has it.
std::string ProfileOfPlan(const plan_file::PlanFile& plan, const std::string& plan_path);

}  // namespace perseus::cli
