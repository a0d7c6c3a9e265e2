// Reads and writes files of a job directory.
//
// A node daemon may run as root, and any user of the node may own a job directory. So a file there,
// and a folder such as plans/, must not be a symbolic link: through it, the owner could read,
// replace or delete files that only the daemon may access. The job directory itself may be a link.
//
// The group of the node daemon may also write into the job directory. So the same applies to a
// rank: another member of the group could put a link to a file of the rank's user in place of a
// file that the rank truncates. OwnFolder opens such files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::protocol {

// Opens a regular file to read it, without waiting. Empty if nothing has this name. Fails (kFile)
// for a symbolic link, a pipe, a directory and so on.
Result<FileDescriptor> OpenJobFile(const std::filesystem::path& path);

// As ReadRegularFile. Fails (kFile) for a symbolic link.
Result<std::string> ReadJobFile(const std::filesystem::path& path,
                                std::uint64_t most_bytes = kMostRegularBytes);

// Replaces `file` (a path in the job directory, such as plans/p.json) atomically, and creates
// missing directories. If `file` is a symbolic link, replaces the link itself. Fails (kSystem) if a
// folder of the path is a symbolic link.
Result<void> WriteJobFile(const std::filesystem::path& job_directory,
                          const std::filesystem::path& file, std::string_view contents);

// The open folder JOBDIR/`folder`. Fails (kSystem) if it does not exist, or is a link.
Result<FileDescriptor> OpenJobFolder(const std::filesystem::path& job_directory,
                                     std::string_view folder);

// Opens a file of the job directory that any user who may write there can lock. Creates what is
// missing. Fails (kSystem) if the file is a link, has a second name, or is not a regular file.
Result<FileDescriptor> OpenJobLock(const std::filesystem::path& job_directory,
                                   const std::string& name);

// A folder of a job directory, in which this process keeps files of its own user. It stays the same
// folder if another user puts something else in its place.
class OwnFolder {
 public:
  // Opens the folder, or the job directory itself if `folder` is empty. Creates what is missing.
  // Fails (kSystem) if the folder is a link. Also fails if the folder, the job directory, or a link
  // in place of the job directory belongs to a user other than this one and root: that user could
  // replace each file in it at any time.
  static Result<OwnFolder> Open(const std::filesystem::path& job_directory,
                                const std::string& folder = "");

  // Opens a file to append to it, and creates it if nothing has this name. Fails (kSystem) unless
  // it is a regular file of this user that has no second name: a link may lead to any file. Does
  // not change an existing file.
  Result<FileDescriptor> OpenFile(const std::string& name) const;
  // Creates a file, in place of the file or link that has this name.
  Result<FileDescriptor> CreateFile(const std::string& name) const;
  // Fail (kSystem) if the file system fails. To remove a file that does not exist is no failure.
  Result<void> Rename(const std::string& from, const std::string& to) const;
  Result<void> Remove(const std::string& name) const;

 private:
  OwnFolder(FileDescriptor folder, std::filesystem::path path)
      : folder_(std::move(folder)), path_(std::move(path)) {}

  FileDescriptor folder_;
  std::filesystem::path path_;
};

}  // namespace perseus::protocol
