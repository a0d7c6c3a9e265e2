// How many samples and tokens the ranks of a job have trained. perseus.progress() of the Python
// package writes JOBDIR/ranks/dp0-pp0-tp0.progress:
//
//   {"perseus_progress":1,"steps":100,"samples":3200,"tokens":6553600}
//
// `steps` are the steps in which the program said it. Any program may write such a file.
#pragma once

#include <filesystem>
#include <set>
#include <system_error>

#include "perseus/base/result.h"

namespace perseus::tuner {

// Whether a file changed at `since` or later.
inline bool HasChanged(const std::filesystem::path& path, std::filesystem::file_time_type since) {
  std::error_code error;
  return std::filesystem::last_write_time(path, error) >= since && !error;
}

// The mean of a step of the job. 0: a pipeline did not say it.
struct Progress {
  double samples = 0;
  double tokens = 0;
};

// Adds up the pipelines `dp_ranks`, from the files that changed at `since` or later. Ranks with the
// same dp_rank share their samples, so the highest numbers count. A file with other content does
// not count. Fails in the same cases as FindRankFiles.
Result<Progress> ReadProgress(const std::filesystem::path& job_directory,
                              const std::set<int>& dp_ranks, std::filesystem::file_time_type since);

}  // namespace perseus::tuner
