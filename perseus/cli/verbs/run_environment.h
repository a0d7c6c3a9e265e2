// The environment in which `perseus run` starts a training: what makes it attach Perseus by itself.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace perseus::cli {

struct RunEnvironment {
  std::map<std::string, std::string> variables;  // To set for the training.
  // The job directory, absolute. Empty if none can be written: then nothing is recorded.
  std::filesystem::path job_directory;
  std::vector<std::string> warnings;  // What does not work, why, and what to do.
  std::string plan_problem;           // Of these, the one why no rank follows the plan; or empty.
};

// `job_directory` empty: makes perseus-run-1 (or the next free number) in the working directory.
// `plan` may be empty. `command` is the training: its Python has to find the package `perseus`.
// Variables that the user has set (PERSEUS_AGENT, PERSEUS_ATTACH, PERSEUS_PROGRAM) stay. Never
// fails: a training runs without Perseus, too.
RunEnvironment PrepareRun(const std::filesystem::path& job_directory,
                          const std::filesystem::path& plan,
                          const std::vector<std::string>& command);

}  // namespace perseus::cli
