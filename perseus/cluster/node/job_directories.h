// Finds the job directories of a node that the server plans for: those with a file server.json,
// which contains the key or id of the job:
//
//   {"job": "gpt3-run7"}
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::node {

// Errors (kInput): "name: job is ... (remedy)".
Result<std::string> ParseServerJob(std::string_view text, std::string_view name);

struct JobDirectories {
  std::map<std::filesystem::path, std::string> jobs;  // Keys, by directory.
  std::vector<std::string> troubles;                  // One for each file that cannot be read.
};
// The job directories in `parent`. None if `parent` does not exist.
JobDirectories FindJobDirectories(const std::filesystem::path& parent);

}  // namespace perseus::node
