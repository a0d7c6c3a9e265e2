// The directory of the results of `perseus plan -o DIR` or `perseus emulate -o DIR`.
//
// Invariants:
// 1. A run first removes the results of an earlier run of the same verb. So whatever fails,
//    afterwards the directory has the results of this run or none. A run never removes or replaces
//    other files, such as those of the other verb. It fails if it would have to replace one.
// 2. Each file appears whole or not at all. The summary is the last file, and lists the others. So
//    if it exists, all of them exist.
// 3. A killed run leaves at most DIR/.perseus-run, in which it writes files before it moves them,
//    and files that the summary in there lists. The next run removes both.
//
// Two runs must not use one directory at the same time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::cli {

// The files that a verb writes.
struct ResultKind {
  std::string_view verb;       // For messages, such as "perseus plan".
  std::string_view summary;    // The name of the file that lists the others.
  std::string_view format;     // The value of its key `format`.
  std::string_view always[4];  // The names of the files that every run writes.
  // Whether a run may write a file with this name, which is not in `always`.
  bool (*is_other)(std::string_view name);
};

extern const ResultKind kPlanResults;
extern const ResultKind kEmulationResults;

struct ResultFile {
  std::string name;  // Relative to the directory, such as "plans/no-slowdown.json".
  std::string contents;
};

class ResultDirectory {
 public:
  // Does not use the directory yet. Keeps a reference to the kind.
  ResultDirectory(std::filesystem::path path, const ResultKind& kind);
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;
  // Removes the staged files that were not published, and the directory if this run created it and
  // published nothing.
  ~ResultDirectory();

  // Creates the directory, removes the results of an earlier run, and checks that the directory is
  // writable. If the file of the summary is not a summary, fails before it removes anything.
  Result<void> Open();

  // Writes the files to DIR/.perseus-run. The last one is the summary. Requires Open().
  Result<void> Stage(const std::vector<ResultFile>& files);

  // Moves the staged files to their places. If this fails, the destructor removes all of them.
  Result<void> Publish();

 private:
  std::filesystem::path path_;
  const ResultKind& kind_;
  std::vector<std::string> staged_;
  bool is_open_ = false;
  bool is_new_ = false;
};

}  // namespace perseus::cli
