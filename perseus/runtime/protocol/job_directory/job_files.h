// Reads and writes files of a job directory.
//
// A node daemon may run as root, and any user of the node may own a job directory. So a file there,
// and a folder such as plans/, must not be a symbolic link. Through such a link, the owner could
// read, replace or delete files that only the daemon may access. The job directory itself may be a
// link.
//
// In a directory of an earlier version, the group of the node daemon may also write. So the same
// rule applies to a rank. Another member of the group could replace a file that the rank truncates
// with a link to any file of the rank's user. OwnFolder opens such files safely.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::protocol {

// Opens the regular file JOBDIR/`file` for reading, without waiting. Returns an empty descriptor if
// the file, or a folder of its path, does not exist. Fails (kFile) for a symbolic link, a pipe, a
// directory and so on. Also fails (kFile) for a file with a second name, and for a file or folder
// that does not belong to the owner of the directory that contains it. Its owner could not have
// written it, but only have moved or linked it there: for example, an old token of the node. Files
// of root are accepted. Two directories may contain files of all owners: a directory that only root
// may write, and a directory that a group may write. (An earlier version of Perseus needed the
// latter.)
Result<FileDescriptor> OpenJobFile(const std::filesystem::path& job_directory,
                                   const std::filesystem::path& file);

// Reads a file that OpenJobFile opens. Fails (kFile) if the file does not exist or is longer than
// `most_bytes`.
Result<std::string> ReadJobFile(const std::filesystem::path& job_directory,
                                const std::filesystem::path& file,
                                std::uint64_t most_bytes = kMostRegularBytes);

// Returns the names of the files in the folder JOBDIR/`folder`. Returns none if the folder does not
// exist. Fails (kFile) in the cases in which OpenJobFile does for a folder, and (kSystem) if the
// folder cannot be listed.
Result<std::vector<std::string>> ListJobFolder(const std::filesystem::path& job_directory,
                                               const std::string& folder);

// Replaces `file` (a path in the job directory, such as plans/p.json) atomically, and creates
// missing directories. If `file` is a symbolic link, replaces the link itself. Fails (kSystem) if a
// folder of the path is a symbolic link.
Result<void> WriteJobFile(const std::filesystem::path& job_directory,
                          const std::filesystem::path& file, std::string_view contents);

// Opens the folder JOBDIR/`folder`. Fails (kSystem) if the folder does not exist or is a link.
Result<FileDescriptor> OpenJobFolder(const std::filesystem::path& job_directory,
                                     std::string_view folder);

// ---- Locks ----
//
// Other users may read the files of a job directory. With flock(2), each of them could lock a file
// and keep its owner from it. So files are locked with F_OFD_SETLK: a lock for writing needs a
// descriptor for writing. A reader can still take a lock for reading. Then the owner replaces the
// file with a new one, which only this user may read until it is locked.
//
// A lock ends when all copies of its descriptor are closed.

enum class WriteLock {
  kTaken,      // This process has the lock, or the file system has no locks.
  kOfAnother,  // Another process of this user has the lock.
  kOfAnyUser,  // Another user may have a lock, or may write to the file. Replace the file.
};
WriteLock LockForWriting(int file);
// Whether another process has the file locked for writing. Empty: the file system has no locks.
// `file` may be open for reading only. False if users other than its owner may write to the file.
std::optional<bool> IsLockedForWriting(int file);
// Lets all users read the file who may read its folder. Does nothing if the file has contents,
// because another user may have moved any file of this user here.
void PublishLocked(int file);
// Ends the lock for all copies of the descriptor.
void Unlock(int file);

// Opens and locks JOBDIR/`name`. Creates what is missing. Returns an empty descriptor if another
// process has the lock. Fails (kSystem) if the file is a link, has a second name, or is not a
// regular file.
Result<FileDescriptor> OpenJobLock(const std::filesystem::path& job_directory,
                                   const std::string& name);

// A folder of a job directory in which this process keeps files of its own user. If another user
// puts something else in place of the folder, this object still refers to the same folder.
class OwnFolder {
 public:
  // Opens the folder. If `folder` is empty, opens the job directory itself. Creates what is
  // missing. Fails (kSystem) if the folder is a link. Also fails if another user than this one or
  // root owns the folder, the job directory, or a link in place of the job directory. That user
  // could replace each file in the folder at any time.
  static Result<OwnFolder> Open(const std::filesystem::path& job_directory,
                                const std::string& folder = "");

  // Opens a file for appending. Creates the file, which only this user may read, if nothing has
  // this name. Fails (kSystem) unless it is a regular file of this user without a second name,
  // because a link may lead to any file. Does not change an existing file.
  Result<FileDescriptor> OpenFile(const std::string& name) const;
  // Creates a file. Replaces the file or link that has this name.
  Result<FileDescriptor> CreateFile(const std::string& name, mode_t mode = 0666) const;
  // Both functions fail (kSystem) if the file system fails. Removing a file that does not exist is
  // no failure.
  Result<void> Rename(const std::string& from, const std::string& to) const;
  Result<void> Remove(const std::string& name) const;

 private:
  OwnFolder(FileDescriptor folder, std::filesystem::path path)
      : folder_(std::move(folder)), path_(std::move(path)) {}

  FileDescriptor folder_;
  std::filesystem::path path_;
};

}  // namespace perseus::protocol
