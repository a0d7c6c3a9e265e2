// The directory of the results of `perseus plan -o DIR`, `perseus emulate -o DIR`, `perseus tune -o
// DIR` or `perseus schedule search -o DIR`.
//
// Invariants:
// 1. New results replace those of an earlier run of the same verb only when all of them are
//    written and flushed. If the run fails or is killed before that, the earlier results stay
//    complete.
// 2. Each file appears whole or not at all. The summary is the first file that a replacement
//    removes and the last one that it writes, and it lists the others. So if it exists, all of them
//    exist and are from one run, even after a power cut.
// 3. A killed run leaves at most DIR/.perseus-new and DIR/.perseus-lock. If it was killed during
//    the replacement (a few renames), the new results are complete there or in their places, and
//    the next run first puts all of them in their places.
// 4. A run never removes or replaces other files, such as those of the user or of another verb. It
//    fails if it would have to replace one. It follows no symbolic link below DIR.
// 5. One run at a time writes into a directory. A second one fails.
//
// The design: a run writes its files into a new directory, DIR/.perseus-new. The summary comes last
// and makes them complete. Then each file is renamed to its place, and files that only the earlier
// run had are removed. All steps can be repeated, so there is nothing to undo: an incomplete new
// directory is removed, and a complete one is put in place. Exchanging DIR with a new directory
// beside it would not work: the user's other files would have to move, a shell in DIR would stay in
// the old one, and DIR could not be a mount point (the usual case in a container).
//
// DIR/.perseus-run, which a killed run of version 0.1 may have left, is a file of the user here: it
// is neither followed nor removed.
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
  std::string_view verb;       // For messages, such as "perseus plan".
  std::string_view summary;    // The name of the file that lists the others, if runs differ.
  std::string_view format;     // The value of its key `format`.
  std::string_view always[4];  // The names of the files that every run writes.
  const char* others;          // The names of those that some runs write, as a regex.
};

extern const ResultKind kPlanResults;
extern const ResultKind kEmulationResults;
extern const ResultKind kTuningResults;
extern const ResultKind kSearchResults;

// Returns the files of the complete results of a run, without its summary, relative to the
// directory. Fails if the directory has no results of that verb. Fails (kSystem) if the results are
// incomplete because another run is replacing them, or was killed while it did.
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

  // Creates and locks the directory, completes what a killed run began, and checks that the results
  // can be written. Changes no results of an earlier run.
  Result<void> Open();

  // Writes the files, except the summary, to DIR/.perseus-new. Requires Open().
  Result<void> Stage(const std::vector<ResultFile>& files);

  // Replaces the results of the earlier run with the staged files. SIGINT, SIGTERM and SIGHUP wait
  // until it is done. Does nothing without files.
  Result<void> Publish();

 private:
  // Locks DIR/.perseus-lock (flock). The kernel releases the lock of a killed run, and the next run
  // takes over the file that it left.
  Result<void> Lock();

  std::filesystem::path path_;
  const ResultKind& kind_;
  FileDescriptor lock_;
  std::vector<std::filesystem::path> created_;  // The directories of this run, deepest first.
  std::vector<std::string> earlier_;            // The files of the earlier run, except its summary.
  std::string summary_;                         // The contents of the staged summary.
  bool has_published_ = false;
};

}  // namespace perseus::cli
