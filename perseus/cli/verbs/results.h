// The directory of the results of `perseus plan -o DIR`, `perseus emulate -o DIR`, `perseus tune -o
// DIR` or `perseus schedule search -o DIR`.
//
// Invariants:
// 1. New results replace the results of an earlier run of the same verb only when all of them are
//    written and flushed. If the run fails or is killed before that, the earlier results stay
//    complete.
// 2. Each file appears whole or not at all. The summary is the first file that a replacement
//    removes and the last file that it writes, and it lists the other files. So if it exists, all
//    of them exist and are from one run, even after a power cut.
// 3. A killed run leaves at most DIR/.perseus-new and DIR/.perseus-lock. If it was killed during
//    the replacement (a few renames), the new results are complete there or in their places, and
//    the next run first puts all of them in their places.
// 4. A run never removes or replaces other files, such as files of the user or of another verb. It
//    fails if it would have to replace such a file. It follows no symbolic link below DIR. Plans of
//    an earlier run stay, because a training may follow them, and the next run may replace them.
// 5. One run at a time writes into a directory. A second run fails.
//
// The design: a run writes its files into a new directory, DIR/.perseus-new. The summary is the
// last file and makes the directory complete. Then each file is renamed to its place, and files
// that only the earlier run had are removed, except plans. All steps can be repeated, so nothing
// has to be undone. After a killed run, an incomplete new directory is removed, and the files of a
// complete new directory are put in their places. Exchanging DIR with a new directory beside it
// would not work. The user's other files would have to move, a shell in DIR would stay in the old
// directory, and DIR could not be a mount point (the usual case in a container).
//
// A killed run of version 0.1 may have left DIR/.perseus-run. It counts as a file of the user, so a
// run neither follows nor removes it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::cli {

// The files that a verb writes.
struct ResultKind {
  std::string_view verb;  // For messages, such as "perseus plan".
  // The name of the file that lists the other files, if not all runs write the same files.
  std::string_view summary;
  std::string_view format;     // The value of the key `format` in the summary.
  std::string_view always[4];  // The names of the files that every run writes.
  const char* others;          // The names of the files that only some runs write, as a regex.
};

extern const ResultKind kPlanResults;
extern const ResultKind kEmulationResults;
extern const ResultKind kTuningResults;
extern const ResultKind kSearchResults;

// Returns the files of the complete results of a run, without its summary, relative to the
// directory. Fails if the directory has no results of this verb. Fails (kSystem) if the results are
// incomplete because another run is replacing them, or was killed while it replaced them.
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
  // Removes files that were not published. If nothing was published, removes the directories that
  // this run created, too.
  ~ResultDirectory();

  // Creates and locks the directory, completes what a killed run began, and checks that the results
  // can be written. Changes no results of an earlier run.
  Result<void> Open();

  // Returns the plans of earlier runs that stay beside new results with these names. The summary
  // has to list them as `earlier_plans`, so that a later run may replace them.
  std::vector<std::string> LeftPlans(const std::vector<std::string>& names) const;

  // Writes the files, except the summary, to DIR/.perseus-new. Requires Open().
  Result<void> Stage(const std::vector<ResultFile>& files);

  // Replaces the results of the earlier run with the staged files. SIGINT, SIGTERM and SIGHUP are
  // blocked until the replacement is done. Does nothing if no files are staged.
  Result<void> Publish();

 private:
  // Locks DIR/.perseus-lock (flock). The kernel releases the lock of a killed run. The next run
  // uses the lock file that the killed run left.
  Result<void> Lock();

  std::filesystem::path path_;
  const ResultKind& kind_;
  FileDescriptor lock_;
  // The directories that this run created, deepest first.
  std::vector<std::filesystem::path> created_;
  std::vector<std::string> earlier_;  // The files of earlier runs, except the summary.
  std::string summary_;               // The contents of the staged summary.
  bool has_published_ = false;
};

}  // namespace perseus::cli
