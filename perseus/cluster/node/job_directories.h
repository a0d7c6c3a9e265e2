// Finds the job directories on this node that belong to jobs planned by the server. Each job
// directory contains a file server.json with the job's key or id:
//
//   {"job": "gpt3-run7"}
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace perseus::node {

struct JobDirectories {
  std::map<std::filesystem::path, std::string> jobs;  // The job keys, by directory.
  // One text for each server.json that cannot be read, by directory.
  std::map<std::filesystem::path, std::string> troubles;
};
// Returns the job directories in `parent`, or none if `parent` does not exist.
JobDirectories FindJobDirectories(const std::filesystem::path& parent);

}  // namespace perseus::node
