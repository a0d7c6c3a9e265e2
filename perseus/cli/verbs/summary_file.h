// The summary of a run of `perseus plan`, as far as `perseus report` reads it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {

// The search for the schedule of a job (`perseus plan --schedule auto`): what Summary::Search needs
// to compare the schedule with its reference again.
nlohmann::ordered_json DescribeSearch(const job::AutoSchedule& schedule,
                                      const schedule_search::Tradeoff& compared);

// The methods fail (kInput) if the summary has something else in the place of what they read.
class Summary {
 public:
  // The summary has nothing if `source` is not a directory with one.
  static Result<Summary> Read(const std::filesystem::path& source);

  // The limits of clock changes that the run compared. Empty if it compared none.
  Result<std::optional<report::SwitchTradeoff>> Tradeoff() const;
  // The limit that all plans of the run keep. Empty if one has none.
  Result<std::optional<int>> MostSwitches() const;
  // Whether the user stopped the run.
  Result<bool> StoppedEarly() const;
  // The search behind the plans of `job`, whose schedule gets its first plan again, on the profile
  // of the job. Empty if the run did not search.
  Result<std::optional<job::AutoSchedule>> Search(const job::LoadedJob& job) const;

 private:
  // What `parse` makes of the summary. Empty if it lacks `key`. `what` is for an error.
  template <typename Value>
  Result<std::optional<Value>> Parse(const char* key, const char* what,
                                     std::optional<Value> (*parse)(const nlohmann::json&)) const;
  tl::unexpected<Error> CannotRead(const char* what) const;

  std::filesystem::path path_;
  nlohmann::json json_;
};

}  // namespace perseus::cli
