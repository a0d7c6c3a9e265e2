#include "perseus/cli/verbs/named_plans.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cli/verbs/results.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

// Returns the plans of the run. The directory may also contain other files of the user.
Result<std::vector<std::string>> PlansIn(const fs::path& directory) {
  PERSEUS_ASSIGN_OR_RETURN(const auto files, FilesOfRun(directory, kPlanResults));
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    if (file.starts_with("plans/")) paths.push_back((directory / file).string());
  }
  if (paths.empty()) {
    return Fail(InFile(directory.string()),
                "has no plans (give a directory that perseus plan -o wrote, or plan files)");
  }
  return paths;
}

}  // namespace

Result<plan_file::PlanFile> ReadPlan(const std::string& path) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  return plan_file::ParsePlan(text, path);
}

Result<std::vector<NamedPlan>> ReadPlans(const std::vector<std::string>& sources) {
  std::vector<NamedPlan> plans;
  for (const std::string& source : sources) {
    std::error_code error;
    std::vector<std::string> paths{source};
    if (fs::is_directory(source, error)) {
      PERSEUS_ASSIGN_OR_RETURN(paths, PlansIn(source));
    }
    for (const std::string& path : paths) {
      PERSEUS_ASSIGN_OR_RETURN(auto plan, ReadPlan(path));
      plans.push_back({path, std::move(plan)});
    }
  }
  return plans;
}

}  // namespace perseus::cli
