// The directory of the results of `perseus plan -o DIR`, `perseus emulate -o DIR`, `perseus tune -o
// DIR` or `perseus schedule search -o DIR`.
//
// Invariants:
// 1. New results replace those of an earlier run of the same verb only when all of them are
//    written. Whatever fails before that, the earlier results stay, complete.
// 2. Each file appears whole or not at all. The summary is the first file that a replacement
//    removes and the last one that it writes, and it lists the others. So if it exists, all of them
//    exist and are from one run, even after a power cut.
// 3. A killed run leaves at most DIR/.perseus-run and DIR/.perseus-lock. If it was killed during
//    the replacement (a few renames), the earlier results are partly in .perseus-run. The next run
//    first restores them.
// 4. A run never removes or replaces other files, such as those of the user or of another verb. It
//    fails if it would have to replace one. It follows no symbolic link below DIR.
// 5. One run at a time writes into a directory. A second one fails.
//
// The replacement writes DIR/.perseus-run/new, moves the earlier results to DIR/.perseus-run/old,
// and moves the new ones to their places: renames inside one file system. A rival is to write a
// directory beside DIR and to exchange both (renameat2 with RENAME_EXCHANGE). This is one step, but
// it would have to move the user's other files from one directory to the other, it changes the
// directory under a shell or a mount that is in it, and it is unavailable on some network file
// systems.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/directory_lock.h"

namespace perseus::cli {

// The files that a verb writes.
struct ResultKind {
  std::string_view verb;       // For messages, such as "perseus plan".
  std::string_view summary;    // The name of the file that lists the others, if runs differ.
  std::string_view format;     // The value of its key `format`.
  std::string_view always[4];  // The names of the files that every run writes.
  // Whether a run may write a file with this name, which is not in `always`.
  bool (*is_other)(std::string_view name);
};

extern const ResultKind kPlanResults;
extern const ResultKind kEmulationResults;
extern const ResultKind kTuningResults;
extern const ResultKind kSearchResults;

// Fails (kSystem) if the directory has only a part of the results of a run, or parts of two runs,
// because a replacement is under way or was killed. For verbs that read results.
Result<void> CheckComplete(const std::filesystem::path& directory);

// The files of the complete results of a run, without its summary, relative to the directory. Fails
// if the directory has none of that verb.
Result<std::vector<std::string>> FilesOfRun(const std::filesystem::path& directory,
                                            const ResultKind& kind);

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
  // Removes what was not published. If nothing was published, removes the directories that this run
  // created, too.
  ~ResultDirectory();

  // Creates and locks the directory, completes or undoes what a killed run left, and checks that
  // the results can be written. Changes no results of an earlier run.
  Result<void> Open();

  // Writes the files to DIR/.perseus-run/new. The last one is the summary. Requires Open().
  Result<void> Stage(const std::vector<ResultFile>& files);

  // Replaces the results of the earlier run by the staged files. If this fails, the earlier results
  // are restored. SIGINT, SIGTERM and SIGHUP wait until it is done. Does nothing without files.
  Result<void> Publish();

 private:
  Result<void> Replace();

  std::filesystem::path path_;
  const ResultKind& kind_;
  std::optional<DirectoryLock> lock_;
  std::vector<std::string> earlier_;  // The files of the earlier run, except its summary.
  std::vector<std::string> staged_;
  bool has_published_ = false;
};

}  // namespace perseus::cli
