#include "perseus/cli/verbs/plan_paths.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "perseus/cli/verbs/results.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

// The plans of the run. A user may have other files beside them.
Result<std::vector<std::string>> PlansIn(const fs::path& directory) {
  PERSEUS_ASSIGN_OR_RETURN(const auto files, FilesOfRun(directory, kPlanResults));
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    if (file.starts_with("plans/")) paths.push_back((directory / file).string());
  }
  if (paths.empty()) {
    return Fail("{}: has no plans (give a directory that perseus plan -o wrote, or plan files)",
                directory.string());
  }
  return paths;
}

}  // namespace

Result<std::vector<std::string>> PlanPaths(const std::vector<std::string>& sources) {
  std::vector<std::string> paths;
  for (const std::string& source : sources) {
    std::error_code error;
    if (!fs::is_directory(source, error)) {
      paths.push_back(source);
      continue;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto found, PlansIn(source));
    std::ranges::copy(found, std::back_inserter(paths));
  }
  return paths;
}

}  // namespace perseus::cli
