// Reads the plans that a user names. A source is a plan file, or a directory that `perseus plan -o`
// wrote.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::cli {

struct NamedPlan {
  std::string path;
  plan_file::PlanFile file;
};

Result<plan_file::PlanFile> ReadPlan(const std::string& path);

// Reads the plans. The plans of a directory are in the order in which the run wrote them, which is
// by iteration time. Fails (kInput) if a directory has no plans.
Result<std::vector<NamedPlan>> ReadPlans(const std::vector<std::string>& sources);

}  // namespace perseus::cli
