// Reads and writes files of a job directory.
//
// A node daemon may run as root, and any user of the node may own a job directory. So a file there,
// and a folder such as plans/, must not be a symbolic link: through it, the owner could read,
// replace or delete files that only the daemon may. The job directory itself may be a link.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::protocol {

// As ReadRegularFile. Fails (kFile) for a symbolic link.
Result<std::string> ReadJobFile(const std::filesystem::path& path,
                                std::uint64_t most_bytes = kMostRegularBytes);

// Replaces `file`, a path such as plans/p.json in the job directory, in one step, as
// WriteFileAtomically does, for all readers. Creates missing directories. Replaces a link, and
// fails (kSystem) if a folder of the path is one.
Result<void> WriteJobFile(const std::filesystem::path& job_directory,
                          const std::filesystem::path& file, std::string_view contents);

// The open folder JOBDIR/`folder`. Fails (kSystem) if it does not exist, or is a link.
Result<FileDescriptor> OpenJobFolder(const std::filesystem::path& job_directory,
                                     std::string_view folder);

}  // namespace perseus::protocol
