#include "perseus/runtime/tuner/rank_progress.h"

#include <algorithm>
#include <map>

#include "perseus/base/json_file.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::tuner {
namespace {

constexpr int kDeepestProgress = 2;
constexpr double kMostProgress = 1e18;

Progress ReadProgressFile(const json_file::Node& node) {
  node.Member("perseus_progress").Count(1, 1, "the version 1");
  const double steps = node.Member("steps").Number(1, kMostProgress, "steps");
  return {node.Member("samples").Number(0, kMostProgress, "samples") / steps,
          node.Member("tokens").Number(0, kMostProgress, "tokens") / steps};
}

}  // namespace

Result<Progress> ReadProgress(const std::filesystem::path& job_directory,
                              const std::set<int>& dp_ranks,
                              std::filesystem::file_time_type since) {
  PERSEUS_ASSIGN_OR_RETURN(const auto files, protocol::FindRankFiles(job_directory, ".progress"));
  std::map<int, Progress> pipelines;
  for (const int dp_rank : dp_ranks) pipelines[dp_rank] = {};
  for (const auto& [name, path] : files) {
    if (!HasChanged(path, since)) continue;
    const auto text = protocol::ReadJobFile(job_directory, path.lexically_relative(job_directory));
    if (!text) continue;
    const auto one = json_file::Read(*text, path.string(), kDeepestProgress, ReadProgressFile);
    if (!one) continue;
    Progress& most = pipelines[name.dp_rank];
    most = {std::max(most.samples, one->samples), std::max(most.tokens, one->tokens)};
  }
  const auto sum_of = [&pipelines](double Progress::*what) {
    double sum = 0;
    for (const auto& [dp_rank, one] : pipelines) {
      if (one.*what == 0) return 0.0;
      sum += one.*what;
    }
    return sum;
  };
  return Progress{sum_of(&Progress::samples), sum_of(&Progress::tokens)};
}

}  // namespace perseus::tuner
