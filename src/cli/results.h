// The directory that `perseus plan -o DIR` writes. Its files belong to one run.
//
// Invariants:
// 1. A run first removes what an earlier run left, so that afterwards the directory holds this
//    run's results or none, whatever goes wrong. Files of other origin stay.
// 2. Each file appears whole or not at all. summary.json comes last and lists the others: where it
//    is, all of them are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::cli {

inline constexpr const char* kSummaryName = "summary.json";

struct ResultFile {
  std::string name;  // Relative to the directory: "plans/no-slowdown.json".
  std::string contents;
};

// Removes the files that summary.json lists, and summary.json. A file there that no run of perseus
// could have written is left alone, whatever the list says.
Result<void> RemoveResults(const std::filesystem::path& directory);

// In the order given; if one cannot be written, those before it are removed again.
Result<void> WriteResults(const std::filesystem::path& directory,
                          const std::vector<ResultFile>& files);

}  // namespace perseus::cli
