// Finds the job directories of a node whose jobs the server plans. They have a file server.json,
// which contains the key or id of the job:
//
//   {"job": "gpt3-run7"}
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace perseus::node {

struct JobDirectories {
  std::map<std::filesystem::path, std::string> jobs;  // Keys, by directory.
  std::vector<std::string> troubles;                  // One for each file that cannot be read.
};
// Returns the job directories in `parent`. Empty if `parent` does not exist.
JobDirectories FindJobDirectories(const std::filesystem::path& parent);

}  // namespace perseus::node
