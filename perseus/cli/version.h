#pragma once

namespace perseus::cli {

// "perseus 0.1.0 (4b097f5f1c2d; Release, GNU 12.2.0)": the version, the commit, and the build. The
// commit ends with "-dirty" if sources were changed since.
const char* VersionText();

// "2026-11-23". Empty if the sources are not in a git repository.
const char* CommitDate();

}  // namespace perseus::cli
