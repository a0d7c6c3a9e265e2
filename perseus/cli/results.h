// The directory that `perseus plan -o DIR` or `perseus emulate -o DIR` writes. Its files belong to
// one run of one of them.
//
// Invariants:
// 1. A run first removes what an earlier run left, so that afterwards the directory holds this
//    run's results or none, whatever goes wrong. Files of other origin, the other verb's among
//    them, are neither removed nor replaced: what would replace one fails.
// 2. Each file appears whole or not at all. The summary comes last and lists the others: where it
//    is, all of them are.
// 3. A run that was killed leaves at most DIR/.perseus-run, where files are written before they are
//    moved to their places, and files that the list in there names. The next run removes both.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::cli {

// What a verb writes.
struct ResultKind {
  std::string_view verb;       // For messages: "perseus plan".
  std::string_view summary;    // The name of the file that lists the others.
  std::string_view format;     // What it says it is.
  std::string_view always[4];  // Written by every run; names of the others depend on it.
  bool (*is_other)(std::string_view name);  // Whether it may be one of those.
};

extern const ResultKind kPlanResults;
extern const ResultKind kEmulationResults;

struct ResultFile {
  std::string name;  // Relative to the directory: "plans/no-slowdown.json".
  std::string contents;
};

class ResultDirectory {
 public:
  // Touches nothing yet. Keeps a reference to the kind.
  ResultDirectory(std::filesystem::path path, const ResultKind& kind);
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;
  // Removes what was staged and not published, and the directory if this run made it for nothing.
  ~ResultDirectory();

  // Makes the directory, removes the results of earlier runs, and sees whether new ones can be
  // written. Fails before it removes anything if the summary was not written by a run.
  Result<void> Open();

  // Writes the files out of sight. The last one is the summary. Requires Open().
  Result<void> Stage(const std::vector<ResultFile>& files);

  // Moves what was staged to its places. If that fails, nothing of it stays.
  Result<void> Publish();

 private:
  std::filesystem::path path_;
  const ResultKind& kind_;
  std::vector<std::string> staged_;
  bool is_open_ = false;
  bool is_new_ = false;
};

}  // namespace perseus::cli
