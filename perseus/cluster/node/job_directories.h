// Finds the job directories of a node that belong to the server: those with a file server.json,
// which names the job by its key or id:
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
  std::vector<std::string> troubles;                  // What could not be read.
};
// Those in `parent`, which need not be there.
JobDirectories FindJobDirectories(const std::filesystem::path& parent);

}  // namespace perseus::node
