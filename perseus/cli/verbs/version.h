#pragma once

namespace perseus::cli {

// "perseus 0.1.0 (4b097f5f1c2d; Release, GNU 12.2.0)": the version, the commit, and the build. The
// commit ends with "-dirty" if sources were changed since.
const char* VersionText();

}  // namespace perseus::cli
