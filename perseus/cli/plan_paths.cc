#include "perseus/cli/plan_paths.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "perseus/cli/results.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> PlansIn(const fs::path& directory) {
  PERSEUS_RETURN_IF_ERROR(CheckComplete(directory));
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory / "plans", error)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  if (error || paths.empty()) {
    return Fail("{}: has no plans (give a directory that perseus plan -o wrote, or plan files)",
                directory.string());
  }
  std::ranges::sort(paths);
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
